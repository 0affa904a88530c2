// What the collectives of a sharded step ask of CUDA, counted on pretended GPUs under the pretended NCCL.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/gpt2.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_nccl/fake_nccl.h"

namespace shardgrad::dist::testing {
namespace {

constexpr int kRanks = 2;
// Of a collective: before it and behind it an event each, one for NCCL's watchdog, and one where the memory goes back
// that another stream had asked for. A stream waits for three of them.
constexpr int64_t kRecords = 4, kWaits = 3;

using Calls = std::map<std::string, int64_t>;

/// Of all ranks in a run of so many steps, its begin and its end.
Calls calls_of_run(int steps) {
  fake_cuda::reset();
  fake_nccl::reset();
  fake_cuda::machine().gpus = kRanks;
  std::atomic<int64_t> collectives{0};
  auto body = [&](ProcessGroup& world) {
    auto model = nn::make<nn::Gpt2>(
        nn::Gpt2Options{.vocab_size = 40, .n_positions = 8, .n_embd = 32, .n_layer = 4, .n_head = 2});
    auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3});
    optim::AdamW optimizer(model->named_parameters(), {});
    Tensor ids = from_vector<int64_t>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 8});
    for (int i = 0; i < steps; ++i) {
      model(ids, nn::TextCall{.labels = ids, .loss = {.count = 8 * kRanks}}).backward();
      optimizer.step(optim::clip_scale(fsdp::grad_power(*sharded), 1.0));
      optimizer.zero_grad();
    }
    collectives += std::ranges::count_if(context().recorder().records(), [](const Record& record) {
      return record.op.starts_with("all_") || record.op == "reduce_scatter";
    });
  };
  VirtualOptions options{.device = kCuda, .seed = 1};
  options.group.kind = "nccl";
  run_ranks(kRanks, body, options);
  Calls calls{{"collectives", collectives}};
  for (const char* name : {"cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaDeviceSynchronize",
                           "cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithPriority", "cudaLaunchHostFunc"})
    calls[name] = fake_cuda::calls(name);
  return calls;
}

TEST(NcclStepCalls, StreamsHandOverByEventsAndTheHostWaitsForNone) {
  constexpr int kSteps = 4;
  Calls before = calls_of_run(4), calls = calls_of_run(4 + kSteps);
  std::string all;
  for (auto& [name, times] : calls) all += concat("\n  ", times -= before[name], ' ', name);
  SCOPED_TRACE(all);
  EXPECT_GE(calls["collectives"], kRanks * kSteps * 3 * 4) << "two gathers and a reduction of each block";
  EXPECT_LE(calls["cudaEventRecord"], kRecords * calls["collectives"]);
  EXPECT_LE(calls["cudaStreamWaitEvent"], kWaits * calls["collectives"]);
  for (const char* never : {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMalloc", "cudaHostAlloc",
                            "cudaStreamCreateWithPriority", "cudaLaunchHostFunc"})
    EXPECT_EQ(calls[never], 0) << never;
  EXPECT_EQ(fake_nccl::alive(), 0);
  EXPECT_EQ(fake_cuda::alive(), 0);
}

}  // namespace
}  // namespace shardgrad::dist::testing
