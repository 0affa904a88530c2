// Recompute and accumulation: what waits between forward and backward, kept and run again; and what is sent for a batch
// that comes in parts.

#include <cmath>
#include <cstdio>
#include <optional>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/recompute.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/ledger_history.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/picture/memory.h>
#include <shardgrad/tutorials/rung.h>

using sg::Tensor;
namespace Category = sg::Category;

constexpr int kBlocks = 6, kRanks = 2, kDrawn = 1;  // kDrawn: the region that the picture shows
constexpr int64_t kWidth = 64, kHidden = 256, kSamples = 512;
thread_local int calls = 0;  // of Block::forward

struct Block : sg::nn::Module {
  sg::nn::Child<sg::nn::Linear> up = child<sg::nn::Linear>("up", kWidth, kHidden, true, sg::Activation::relu);
  sg::nn::Child<sg::nn::Linear> down = child<sg::nn::Linear>("down", kHidden, kWidth);
  Tensor forward(const Tensor& x) {
    ++calls;
    return x + down(up(x));
  }
};
using Blocks = std::vector<sg::nn::Child<Block>>;
Tensor run_blocks(const Blocks& blocks, Tensor x, int region);  // yours

struct Net : sg::nn::Module {
  Blocks blocks;
  int region = 0;  // blocks in a region; 0: none
  Net() {
    for (int i = 0; i < kBlocks; ++i) blocks.push_back(child<Block>("block" + std::to_string(i)));
  }
  Tensor forward(const Tensor& x) { return run_blocks(blocks, x, region); }
};

#include YOURS  // solution.cpp, or your copy of exercise.cpp

Tensor samples(const std::string& name) {
  sg::TagScope tag(Category::named<"data">);
  return sg::Generator(name).randn({kSamples, kWidth});
}

struct Seen {
  int64_t waiting = 0, highest = 0;  // bytes of activations: between forward and backward, and at most in backward
  int calls = 0;                     // of blocks
  int64_t sent = 0, gradients = 0;   // bytes sent, and of whole gradients at most
  std::vector<float> numbers;        // what must be the same: gradients, or weights after a step
};

Seen one_step(int region, learn::Rung& rung) {
  sg::Context context({.threads = 1});
  sg::Ledger& ledger = context.ledger();
  auto model = sg::nn::make<Net>();
  model->region = region;
  model->materialize();
  Tensor x = samples("x");
  sg::LedgerHistory history(ledger, context.recorder());
  sg::picture::Memory picture{{"memory", "Memory of one step", "Bytes by owner, in the order in which they changed."}};
  Seen step;
  calls = 0;
  Tensor loss = sg::sum(sg::abs(model(x)));
  step.waiting = ledger.current(Category::activation);
  picture.marks = {{double(history.changes().size()), "backward"}};
  ledger.reset_peaks();
  loss.backward();
  step.highest = ledger.peak(Category::activation);
  step.calls = calls;
  for (const sg::NamedParameter& parameter : model->named_parameters())
    for (float element : parameter.tensor.grad().to_vector<float>()) step.numbers.push_back(element);
  picture.by_order = true;
  picture.bytes = sg::picture::bytes_over_time(history.before(), history.changes(), true);
  if (region == kDrawn) rung.picture(draw(picture));
  return step;
}

void recompute(learn::Rung& rung) {
  Seen plain;
  std::printf("region   waiting, bytes   highest, bytes   calls\n");
  for (int region : {0, 1, 2, 3, 4}) {
    Seen step = one_step(region, rung);
    if (region == 0) plain = step;
    std::printf("%6d %16lld %16lld %7d\n", region, (long long)step.waiting, (long long)step.highest, step.calls);
    rung.require(step.numbers == plain.numbers, sg::concat("regions of ", region, " give other gradients"));
    rung.require(!region || step.waiting < plain.waiting, sg::concat("regions of ", region, " keep as much as none"));
    std::string of = "_" + std::to_string(region);
    rung.count("waiting" + of, double(step.waiting)), rung.count("highest" + of, double(step.highest));
    rung.count("calls" + of, step.calls);
  }
}

// Under zero2, on rank 0.
Seen step_on_parts(const std::vector<int64_t>& rows, bool once) {
  Seen seen;
  auto body = [&](sg::dist::ProcessGroup& world) {
    auto model = sg::nn::make<Net>();
    auto sharded = sg::fsdp::fully_shard(model.module(), world, {.strategy = sg::fsdp::Strategy::zero2});
    sg::optim::SGD optimizer(model->named_parameters(), {.lr = 0.5});
    Tensor x = samples("x of rank " + std::to_string(world.rank()));
    std::vector<Tensor> parts;
    for (int64_t first = 0; int64_t each : rows) parts.push_back(sg::clone(x.rows(first, first + each))), first += each;
    int64_t before = sg::context().recorder().total_bytes_sent();
    accumulate(model, *sharded, parts, double(kRanks * kSamples * kWidth), once);
    int64_t sent = sg::context().recorder().total_bytes_sent() - before;
    optimizer.step();
    auto state = sg::fsdp::full_state_dict(*sharded);
    if (world.rank() != 0) return;
    seen.sent = sent, seen.gradients = sg::context().ledger().peak(Category::full_gradient);
    for (const auto& [name, tensor] : state)
      for (float element : tensor.to_vector<float>()) seen.numbers.push_back(element);
  };
  sg::dist::run_ranks(kRanks, body, {.threads = 1});
  return seen;
}

void accumulation(learn::Rung& rung) {
  const std::vector<int64_t> rows = {180, 60, 150, 122};  // of a rank's parts
  rung.term("K", double(rows.size()));
  Seen whole = step_on_parts({kSamples}, false), each = step_on_parts(rows, false), once = step_on_parts(rows, true);
  for (const auto& [how, seen] : {std::pair("each", each), std::pair("once", once)}) {
    std::printf("reduced %s: %lld bytes sent, ", how, (long long)seen.sent);
    std::printf("whole gradients of %lld bytes at most\n", (long long)seen.gradients);
    rung.count(sg::concat("sent_", how), double(seen.sent));
    rung.count(sg::concat("gradients_", how), double(seen.gradients));
    double off = 0;
    for (size_t i = 0; i < whole.numbers.size(); ++i)
      off = std::max(off, double(std::abs(seen.numbers[i] - whole.numbers[i])));
    rung.require(off < 1e-6, sg::concat("reduced ", how, ", the parts learn something else than the whole, by ", off));
  }
  rung.require(once.sent < each.sent, "reduced once, as much is sent as reduced each time");
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    rung.term("L", kBlocks), rung.term("D", double(kWidth)), rung.term("H", double(kHidden));
    rung.term("B", double(kSamples)), rung.term("F", sizeof(float)), rung.term("W", kRanks);
    recompute(rung);
    accumulation(rung);
  });
}
