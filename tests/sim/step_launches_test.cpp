// How many kernels a training step launches, besides products: counted on the simulator, whose kernels are those of
// device cuda, for the GPT-2 of 12 blocks, narrow, under zero3 with parameters of bf16. Tokens, places and words are
// more than 256 each, for there sums over rows and sorts begin to take a second pass, as they do in a large model.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/kernels/sim/launch.h>
#include <shardgrad/nn/gpt2.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>

namespace shardgrad {
namespace {

constexpr uint64_t kMost = 210;      // as one is counted
constexpr uint64_t kMasks = 2 * 25;  // drawn in forward and again in backward: of the embeddings and two of each block

uint64_t launches() {
  uint64_t all = 0;
  for (const sim::KernelRecord* kernel = sim::KernelRecord::first(); kernel; kernel = kernel->next())
    all += kernel->launches();
  return all;
}

/// Counts the kernels of each operation while it lives. A call whose operands look like those of one before is not
/// made: it counts as that one did, and its results are zeros. So of 12 blocks that are alike the simulator runs one.
class LaunchCount final : public LaunchTrial {
 public:
  LaunchCount() { context().backend(kSim).compute().synchronize(); }
  void launched(const Call& call) override {
    std::string kind = call.slot.name();
    for (const auto* operands : {&call.inputs, &call.outputs})
      for (const Tensor& each : *operands) kind += concat(' ', each.dtype(), each.shape());
    auto known = call.outputs.empty() ? of_kind_.end() : of_kind_.find(kind);
    if (known == of_kind_.end())
      known = of_kind_.insert_or_assign(kind, run(call)).first;
    else
      for (const Tensor& each : call.outputs) launch(kernels::fill, each, out(each), 0.0);
    counts_[call.slot.name()] += known->second;
  }
  const std::map<std::string, uint64_t>& counts() const { return counts_; }

 private:
  static uint64_t run(const Call& call) {
    context().backend(kSim).compute().synchronize();
    uint64_t before = launches();
    call.run(false);
    context().backend(kSim).compute().synchronize();
    return launches() - before;
  }
  std::map<std::string, uint64_t> of_kind_, counts_;
};

Tensor some_ids(const Shape& shape) {
  std::vector<int64_t> ids(size_t(shape.numel()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int64_t(i * 7 % 300);
  return from_vector(ids, shape);
}

// By operation, in the third step of a run.
std::map<std::string, uint64_t> counts_of_a_step(double dropout) {
  std::map<std::string, uint64_t> counts;
  auto body = [&](dist::ProcessGroup& world) {
    nn::Gpt2Options options{.vocab_size = 300, .n_positions = 300, .n_embd = 32, .n_layer = 12, .n_head = 2};
    options.embd_pdrop = options.attn_pdrop = options.resid_pdrop = dropout;
    auto model = nn::make<nn::Gpt2>(options);
    auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3, .param_dtype = DType::bf16});
    optim::Overrides plain{.weight_decay = 0};
    optim::AdamW optimizer(model->named_parameters(), {.weight_decay = 0.1},
                           {{"*.bias", plain}, {"*ln_?.weight", plain}});
    for (int step = 0; step < 3; ++step) {
      progress() = {uint64_t(step), 0};
      Tensor ids = step < 2 ? some_ids({1, 8}) : some_ids({2, 300});
      LaunchCount count;
      model(ids, nn::TextCall{.labels = ids, .loss = {.count = ids.numel()}}).backward();
      optimizer.step(optim::clip_scale(fsdp::grad_power(*sharded), 1.0));
      optimizer.zero_grad();
      counts = count.counts();
    }
  };
  dist::run_ranks(1, body, {.device = kSim, .seed = 1});
  return counts;
}

void expect_at_most(uint64_t limit, std::map<std::string, uint64_t> counts) {
  for (const char* product : {"matmul", "linear_backward_input", "linear_backward_weight"}) {
    EXPECT_GT(counts[product], 12u);
    counts.erase(product);
  }
  uint64_t all = 0;
  std::string table;
  for (const auto& [operation, count] : counts) {
    all += count;
    table += concat("\n  ", count, ' ', operation);
  }
  EXPECT_LE(all, limit) << table;
  EXPECT_GT(all, limit * 9 / 10) << "the limit says little" << table;
}

TEST(StepLaunches, Of12BlocksOfGptAreFew) { expect_at_most(kMost, counts_of_a_step(0)); }
TEST(StepLaunches, DropoutAddsOneForEachMask) { expect_at_most(kMost + kMasks, counts_of_a_step(0.1)); }
// What a GPU's host has time for, with dropout.
static_assert(kMost + kMasks <= 260);

}  // namespace
}  // namespace shardgrad
