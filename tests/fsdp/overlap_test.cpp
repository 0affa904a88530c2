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
struct Stage : nn::Module {
  nn::Child<nn::Linear> linear = child<nn::Linear>("linear", 7, 7);
  Tensor forward(const Tensor& x) {
    std::this_thread::sleep_for(kCompute);
    Tensor y = linear(x);
    if (Node* node = node_of(y)) node->add_pre_hook([] { std::this_thread::sleep_for(kCompute); });
    return y;
  }
};

struct EqualLayers : nn::Module {
  std::vector<nn::Child<Stage>> blocks;
  EqualLayers() {
    for (int i = 0; i < 8; ++i) blocks.push_back(child<Stage>("block" + std::to_string(i)));
  }
  Tensor forward(Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  }
};

/// Five layers that are called one after another, the first by itself.
struct FirstApart : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7);
  std::vector<nn::Child<nn::Linear>> layers;
  FirstApart() {
    for (int i = 0; i < 4; ++i) layers.push_back(child<nn::Linear>("layer" + std::to_string(i), 7, 7));
  }
  Tensor forward(const Tensor& x) { return rest(first(x)); }
  Tensor first(const Tensor& x) { return in(x); }
  Tensor rest(Tensor x) {
    for (auto& layer : layers) x = layer(x);
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

// The first collective of backward ends only when backward has come to the first block, four blocks later. Where the
// full gradients stay in memory anyway there is no reason to wait for it before that.
TEST(Overlap, BackwardWaitsForNoReductionWhoseGradientsStayInMemory) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    std::atomic<bool> armed = false, late = false;
    std::atomic<int> at_first_block = 0;
    dist::VirtualOptions options{.threads = 1};
    options.group.delay = [&](int64_t) {
      for (int i = 0; armed && at_first_block < 2; ++i) {
        std::this_thread::sleep_for(1ms);
        if (i == 3000) armed = false, late = true;
      }
      return 0us;
    };
    dist::run_ranks(
        2,
        [&](dist::ProcessGroup& group) {
          auto model = nn::make<FirstApart>();
          fully_shard(*model, group, {.strategy = strategy, .bucket_bytes = no_buckets(strategy)});
          Tensor hidden = model->first(rows_of_batch("x", 0, 0, 2, 7, DType::f32));
          node_of(hidden)->add_pre_hook([&] { ++at_first_block; });
          Tensor loss = mse_loss(model->rest(hidden), zeros({2, 7}), 28);
          group.barrier();
          armed = true;
          loss.backward();
          armed = false;
          model->zero_grad();
        },
        options);
    EXPECT_FALSE(late) << name_of(strategy) << ": backward waited for the network with the first block still to do";
  }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
