// How many kernels a training step launches, besides products: counted on the simulator, whose kernels are those of
// device cuda, for the GPT-2 of 12 blocks, small, under zero3 with parameters of bf16.

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/kernels/sim/launch.h>
#include <shardgrad/nn/gpt2.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>

namespace shardgrad {
namespace {

uint64_t launches() {
  uint64_t all = 0;
  for (const sim::KernelRecord* kernel = sim::KernelRecord::first(); kernel; kernel = kernel->next())
    all += kernel->launches();
  return all;
}

/// Counts the kernels of each operation while it lives.
class LaunchCount final : public LaunchTrial {
 public:
  LaunchCount() { context().backend(kSim).compute().synchronize(); }
  void launched(const Call& call) override {
    uint64_t before = launches();
    call.run(false);
    context().backend(kSim).compute().synchronize();
    counts_[call.slot.name()] += launches() - before;
  }
  const std::map<std::string, uint64_t>& counts() const { return counts_; }

 private:
  std::map<std::string, uint64_t> counts_;
};

// By operation, in the third step of a run.
std::map<std::string, uint64_t> counts_of_a_step(double dropout) {
  std::map<std::string, uint64_t> counts;
  auto body = [&](dist::ProcessGroup& world) {
    nn::Gpt2Options options{.vocab_size = 40, .n_positions = 8, .n_embd = 32, .n_layer = 12, .n_head = 2};
    options.embd_pdrop = options.attn_pdrop = options.resid_pdrop = dropout;
    auto model = nn::make<nn::Gpt2>(options);
    auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3, .param_dtype = DType::bf16});
    optim::Overrides plain{.weight_decay = 0};
    optim::AdamW optimizer(model->named_parameters(), {.weight_decay = 0.1},
                           {{"*.bias", plain}, {"*ln_?.weight", plain}});
    Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 8});
    for (int step = 0; step < 3; ++step) {
      progress() = {uint64_t(step), 0};
      std::optional<LaunchCount> count;
      if (step == 2) count.emplace();
      model(ids, nn::TextCall{.labels = ids, .loss = {.count = 8}}).backward();
      optimizer.step(optim::clip_scale(fsdp::grad_power(*sharded), 1.0));
      optimizer.zero_grad();
      if (count) counts = count->counts();
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

TEST(StepLaunches, Of12BlocksOfGptAreFew) { expect_at_most(210, counts_of_a_step(0)); }
TEST(StepLaunches, DropoutAddsOneForEachMask) { expect_at_most(260, counts_of_a_step(0.1)); }

}  // namespace
}  // namespace shardgrad
