// Draws the pictures of the docs from the model of rung 10 of the ladder on four ranks of device meta: nothing is
// computed there, but everything is counted, in the same order each time.
//
//     draw_pictures --write FOLDER     writes them
//     draw_pictures --check FOLDER     fails where one is not what it would write

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/ledger_history.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/picture/bars.h>
#include <shardgrad/picture/memory.h>

using namespace shardgrad;

namespace {

constexpr int kRanks = 4;
constexpr int64_t kWidthOfLayer = 1024, kMiB = 1 << 20;

/// Of rank 0, in the second step, in which every buffer exists already.
struct Seen {
  picture::Memory memory;
  std::vector<Record> records;
  std::map<std::string, int64_t> full_bytes;  // by unit
};

Seen second_step(dist::ProcessGroup& world, fsdp::Strategy strategy) {
  auto model = nn::make<nn::Sequential>();
  for (int i = 0; i < 3; ++i) model->add<nn::Linear>(kWidthOfLayer, kWidthOfLayer, true, Activation::relu);
  auto sharded = fsdp::fully_shard(model.module(), world, {.strategy = strategy});
  optim::AdamW optimizer(model->named_parameters(), {});
  Tensor x = ones({64, kWidthOfLayer});
  auto step = [&](auto&& mark) {
    mark("forward");
    Tensor loss = sum(model(x));
    mark("backward");
    loss.backward();
    mark("step");
    optimizer.step();
    optimizer.zero_grad();
  };
  step([](const char*) {});
  Seen seen;
  context().recorder().clear();
  LedgerHistory history(context().ledger(), context().recorder());
  step([&](const char* name) { seen.memory.marks.push_back({double(history.changes().size()), name}); });
  seen.memory.by_order = true;
  seen.memory.bytes = picture::bytes_over_time(history.before(), history.changes(), true);
  seen.records = context().recorder().records();
  for (const auto& unit : sharded->units()) seen.full_bytes[unit->name()] = int64_t(unit->full_bytes());
  return seen;
}

Seen seen_under(fsdp::Strategy strategy) {
  Seen seen;
  dist::run_ranks(kRanks,
                  [&](dist::ProcessGroup& world) {
                    Seen mine = second_step(world, strategy);
                    if (world.rank() == 0) seen = mine;
                  },
                  {.device = kMeta, .threads = 1});
  return seen;
}

std::string memory_picture(fsdp::Strategy strategy) {
  picture::Memory memory = seen_under(strategy).memory;
  memory.caption = {concat("memory-", name_of(strategy)), concat("Memory of one step under ", name_of(strategy)),
                    "Bytes of rank 0 of four by owner, in the order in which they changed."};
  memory.room = 55 * kMiB;
  return draw(memory);
}

// Gathered for forward and again for backward, but for the unit that forward ends with, and reduced once: 3 or 2 times
// what the other ranks' parts are.
std::string sent_picture() {
  Seen seen = seen_under(fsdp::Strategy::zero3);
  picture::Bars bars{{"sent-zero3", "Sent in one step under zero3", "Bytes that rank 0 of four sends, by unit."},
                     picture::Unit::bytes,
                     "by the recorder",
                     "by the formula"};
  std::map<std::string, int64_t> sent;
  for (const Record& record : seen.records) sent[record.unit] += record.bytes_sent;
  for (const auto& [unit, bytes] : seen.full_bytes) {
    int64_t times = unit == seen.full_bytes.rbegin()->first ? 2 : 3;
    bars.pairs.push_back({"layer " + unit, double(sent[unit]), double(times * bytes * (kRanks - 1) / kRanks)});
  }
  return draw(bars);
}

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

bool is_as_drawn(const std::filesystem::path& file, const std::string& drawn) {
  if (text_of(file) == drawn) return true;
  std::printf("%s is not what this program draws; look at what changed, and draw it with --write\n", file.c_str());
  return false;
}

}  // namespace

int main(int count, char** words) {
  std::string option = count == 3 ? words[1] : "";
  if (option != "--write" && option != "--check") return std::puts("draw_pictures --write|--check FOLDER"), 2;
  std::map<std::string, std::string> pictures{{"sent_zero3", sent_picture()}};
  for (auto strategy : {fsdp::Strategy::ddp, fsdp::Strategy::zero2, fsdp::Strategy::zero3})
    pictures[concat("memory_", name_of(strategy))] = memory_picture(strategy);
  bool right = true;
  for (const auto& [name, drawn] : pictures) {
    std::filesystem::path file = std::filesystem::path(words[2]) / (name + ".svg");
    if (option == "--write") std::ofstream(file) << drawn;
    right = is_as_drawn(file, drawn) && right;
  }
  return right ? 0 : 1;
}
