// What a training step asks of the CUDA runtime once memory and states are there, counted on the pretended GPU: how
// much work it queues, how many events it records and waits for, and that the host waits for nothing.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>
#include <string>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/numbers.h"

namespace shardgrad {
namespace {

/// The most of a step. Work is kernels and copies, one for each operation however many kernels it is made of.
struct Ceiling {
  int64_t work, records, waits;
};
// One stream does it all, so no event is needed. A sharded model notes when each unit's shard has been written, for
// those who will ask for it.
constexpr Ceiling kMlp{20, 0, 0}, kGpt{275, 0, 0}, kShardedGpt{290, 13, 0};

using Calls = std::map<std::string, int64_t>;

Calls calls_so_far() {
  Calls calls;
  for (const char* name :
       {"cudaEventRecord", "cudaStreamWaitEvent", "cudaEventQuery", "cudaEventCreateWithFlags", "cudaStreamSynchronize",
        "cudaDeviceSynchronize", "cudaLaunchHostFunc", "cudaGetDevice", "cudaSetDevice", "cudaMalloc", "cudaFree",
        "cudaHostAlloc", "cudaFreeHost", "cudaStreamCreateWithPriority"})
    calls[name] = fake_cuda::calls(name);
  for (const auto& [label, times] : fake_cuda::nested_ranges()) calls["work"] += times;
  return calls;
}

/// Of the second of two steps that are alike: what they ask for is the same.
Calls calls_of(const std::function<void()>& step) {
  Calls of_step[2];
  for (int i = 0; i < 5; ++i) step();
  for (Calls& calls : of_step) {
    Calls before = calls_so_far();
    step();
    calls = calls_so_far();
    for (auto& [name, times] : calls) times -= before[name];
  }
  EXPECT_EQ(of_step[0]["work"], of_step[1]["work"]);
  return of_step[1];
}

void expect_at_most(const Ceiling& most, Calls calls) {
  std::string all;
  for (const auto& [name, times] : calls) all += concat("\n  ", times, ' ', name);
  SCOPED_TRACE(all);
  for (const char* waits_or_asks :
       {"cudaEventQuery", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaLaunchHostFunc", "cudaMalloc",
        "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags"})
    EXPECT_EQ(calls[waits_or_asks], 0) << waits_or_asks;
  EXPECT_EQ(calls["cudaSetDevice"], 0) << "a thread that is on the GPU chooses it once more";
  EXPECT_LE(calls["cudaGetDevice"], calls["work"]) << "one question for each launch";
  EXPECT_LE(calls["work"], most.work);
  EXPECT_GT(calls["work"], most.work * 3 / 4) << "the limit says little";
  EXPECT_LE(calls["cudaEventRecord"], most.records);
  EXPECT_LE(calls["cudaStreamWaitEvent"], most.waits);
}

struct Mlp : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 256, 256), middle = child<nn::Linear>("middle", 256, 256),
                        out = child<nn::Linear>("out", 256, 256);
  Tensor forward(const Tensor& x) { return out(relu(middle(relu(in(x))))); }
};

TEST(FakeCudaStepCalls, OfAnMlpTheHostQueuesTheKernelsAndNothingElse) {
  fake_cuda::reset();
  {
    Context context({.device = kCuda});
    auto model = nn::make<Mlp>();
    model->materialize();
    optim::AdamW optimizer(model->named_parameters(), {});
    Tensor x = test::normal({32, 256}, "x"), y = test::normal({32, 256}, "y");
    expect_at_most(kMlp, calls_of([&] {
                     mse_loss(model->forward(x), y).backward();
                     optimizer.step(optim::clip_scale(optim::grad_power(model->named_parameters()), 1.0));
                     optimizer.zero_grad();
                   }));
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

nn::Gpt2Options small_gpt() { return {.vocab_size = 40, .n_positions = 8, .n_embd = 32, .n_layer = 12, .n_head = 2}; }
Tensor loss_of(nn::Child<nn::Gpt2>& model, const Tensor& ids) {
  return model(ids, nn::TextCall{.labels = ids, .loss = {.count = ids.numel()}});
}
Tensor some_ids() {
  std::vector<int64_t> ids(16);
  std::iota(ids.begin(), ids.end(), 1);
  return from_vector(ids, {2, 8});
}

TEST(FakeCudaStepCalls, OfAGptTheHostQueuesTheKernelsAndNothingElse) {
  fake_cuda::reset();
  {
    Context context({.device = kCuda});
    auto model = nn::make<nn::Gpt2>(small_gpt());
    model->materialize();
    optim::AdamW optimizer(model->named_parameters(), {});
    Tensor ids = some_ids();
    expect_at_most(kGpt, calls_of([&] {
                     loss_of(model, ids).backward();
                     optimizer.step(optim::clip_scale(optim::grad_power(model->named_parameters()), 1.0));
                     optimizer.zero_grad();
                   }));
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST(FakeCudaStepCalls, OfAShardedGptOfOneRankTheHostQueuesTheKernelsAndNothingElse) {
  fake_cuda::reset();
  auto body = [](dist::ProcessGroup& world) {
    auto model = nn::make<nn::Gpt2>(small_gpt());
    auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3});
    optim::AdamW optimizer(model->named_parameters(), {});
    Tensor ids = some_ids();
    expect_at_most(kShardedGpt, calls_of([&] {
                     loss_of(model, ids).backward();
                     optimizer.step(optim::clip_scale(fsdp::grad_power(*sharded), 1.0));
                     optimizer.zero_grad();
                   }));
  };
  dist::run_ranks(1, body, {.device = kCuda, .seed = 1});
  EXPECT_EQ(fake_cuda::alive(), 0);
}

}  // namespace
}  // namespace shardgrad
