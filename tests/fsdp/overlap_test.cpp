// Transfers run beside compute: a step on a slow fake network costs little more than its compute.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

using namespace std::chrono_literals;
constexpr auto kCompute = 20ms;  // of one block, forward and backward each
constexpr auto kTransfer = 8ms;  // of one collective

/// A layer that takes kCompute in forward and in backward.
struct Block : nn::Module {
  nn::Child<nn::Linear> linear = child<nn::Linear>("linear", 7, 7);
  Tensor forward(const Tensor& x) {
    std::this_thread::sleep_for(kCompute);
    Tensor y = linear(x);
    if (Node* node = node_of(y)) node->add_pre_hook([] { std::this_thread::sleep_for(kCompute); });
    return y;
  }
};

struct EqualLayers : nn::Module {
  std::vector<nn::Child<Block>> blocks;
  EqualLayers() {
    for (int i = 0; i < 8; ++i) blocks.push_back(child<Block>("block" + std::to_string(i)));
  }
  Tensor forward(Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  }
};

/// The fastest of some steps; others may use the cores meanwhile, so it tries up to `steps` times to come under `goal`.
double seconds_per_step(int prefetch, double goal, int steps) {
  std::atomic<double> best = 1e9;
  dist::VirtualOptions options{.threads = 1};
  options.group.delay = dist::fixed_delay(kTransfer);
  dist::run_ranks(
      2,
      [&](dist::ProcessGroup& group) {
        auto model = nn::make<EqualLayers>();
        fully_shard(*model, group, {.strategy = Strategy::zero3, .prefetch = prefetch});
        for (int step = 0; step < steps; ++step) {
          group.barrier();
          if (best < goal) break;
          auto begin = std::chrono::steady_clock::now();
          mse_loss(model(zeros({2, 7})), zeros({2, 7}), 1).backward();
          model->zero_grad();
          std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
          if (step > 0 && group.rank() == 0) best = std::min(best.load(), time.count());
        }
      },
      options);
  return best;
}

TEST(Overlap, I25_AStepCostsLessThanComputePlusAQuarterOfTheCommunication) {
  std::chrono::duration<double> compute = 16 * kCompute, communication = (15 + 8) * kTransfer;
  double bound = compute.count() + communication.count() / 4;
  EXPECT_LT(seconds_per_step(1, bound, 30), bound);
  EXPECT_GT(seconds_per_step(0, bound, 6), bound) << "without prefetch the test must fail";
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
