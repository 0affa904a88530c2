// The model of rung 10 of the ladder on four ranks of device meta: nothing is computed there, but everything is
// counted, in the same order each time.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/picture/bars.h>
#include <shardgrad/picture/memory.h>

#include "docs/pictures/drawings.h"

namespace drawings {

using sg::fsdp::Strategy;

Training::Training(sg::dist::ProcessGroup& world, int layers, int64_t width, sg::fsdp::Config config) {
  for (int i = 0; i < layers; ++i) model_->add<sg::nn::Linear>(width, width, true, sg::Activation::relu);
  sharded_ = sg::fsdp::fully_shard(model_.module(), world, config);
  optimizer_ = std::make_unique<sg::optim::AdamW>(model_->named_parameters(), sg::optim::AdamOptions{});
  x_ = sg::ones({kBatch, width});
}

void Training::step(const std::function<void(const char*)>& mark) {
  mark("forward");
  sg::Tensor loss = sum(model_(x_));
  mark("backward");
  loss.backward();
  mark("step");
  optimizer_->step();
  optimizer_->zero_grad();
}

namespace {

constexpr int64_t kMiB = 1 << 20;

/// Of rank 0, in the second step, in which every buffer exists already.
struct Seen {
  sg::picture::Memory memory;
  std::vector<sg::Record> records;
  std::map<std::string, int64_t> full_bytes;  // by unit
};

Seen second_step(sg::dist::ProcessGroup& world, int layers, Strategy strategy) {
  Training training(world, layers, 1024, {.strategy = strategy, .shard_ranks = strategy == Strategy::hybrid ? 2 : 0});
  training.step();
  Seen seen;
  sg::context().recorder().clear();
  sg::LedgerHistory history(sg::context().ledger(), sg::context().recorder());
  training.step([&](const char* name) { seen.memory.marks.push_back({double(history.changes().size()), name}); });
  seen.memory.by_order = true;
  seen.memory.bytes = sg::picture::bytes_over_time(history.before(), history.changes(), true);
  seen.records = sg::context().recorder().records();
  for (const auto& unit : training.sharded().units()) seen.full_bytes[unit->name()] = int64_t(unit->full_bytes());
  return seen;
}

Seen seen_under(int layers, Strategy strategy) {
  Seen seen;
  auto body = [&](sg::dist::ProcessGroup& world) {
    Seen mine = second_step(world, layers, strategy);
    if (world.rank() == 0) seen = mine;
  };
  sg::dist::run_ranks(kRanks, body, {.device = sg::kMeta, .threads = 1});
  return seen;
}

// Gathered for forward and again for backward, but for the unit that forward ends with, and reduced once: 3 or 2 times
// what the other ranks' parts are.
std::string sent_picture(const Seen& seen) {
  sg::picture::Bars bars{{"sent-zero3", "Sent in one step under zero3", "Bytes that rank 0 of four sends, by unit."},
                         sg::picture::Unit::bytes,
                         "by the recorder",
                         "by the formula",
                         {}};
  std::map<std::string, int64_t> sent;
  for (const sg::Record& record : seen.records) sent[record.unit] += record.bytes_sent;
  for (const auto& [unit, bytes] : seen.full_bytes) {
    int64_t times = unit == seen.full_bytes.rbegin()->first ? 2 : 3;
    bars.pairs.push_back({"layer " + unit, double(sent[unit]), double(times * bytes * (kRanks - 1) / kRanks)});
  }
  return draw(bars);
}

}  // namespace

void draw_memory(Pictures& all) {
  sg::picture::Memories side_by_side{
      {"memory-strategies", "Memory of one training step under five strategies",
       "Bytes by owner on rank 0 of four, for six equal layers and one batch, in the order in which they changed."},
      {},
      "Dotted: backward begins, the step begins."};
  for (auto strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3, Strategy::hybrid}) {
    side_by_side.cases.push_back(seen_under(6, strategy).memory);
    side_by_side.cases.back().caption.title = name_of(strategy);
  }
  all["memory_strategies"] = draw(side_by_side);
  for (auto strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    Seen seen = seen_under(3, strategy);
    sg::picture::Memory& memory = seen.memory;
    memory.caption = {sg::concat("memory-", name_of(strategy)),
                      sg::concat("Memory of one step under ", name_of(strategy)),
                      "Bytes of rank 0 of four by owner, in the order in which they changed."};
    memory.room = 55 * kMiB;
    all[sg::concat("memory_", name_of(strategy))] = draw(memory);
    if (strategy == Strategy::zero3) all["sent_zero3"] = sent_picture(seen);
  }
}

}  // namespace drawings
