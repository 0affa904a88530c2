// dist/transports/nccl on the pretended NCCL and GPUs: the suite of every group, the watchdog, aborts, and refusals.

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/transports/nccl/nccl.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/train/grains.h>
#include <tests/dist/group/group_cases.h>

#include <cstdlib>
#include <mutex>
#include <thread>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/queued_kernels.h"
#include "tests/fake_nccl/fake_nccl.h"
#include "tests/fsdp/training.h"

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;

VirtualOptions nccl(int ranks) {
  fake_cuda::reset();
  fake_nccl::reset();
  fake_cuda::machine().gpus = ranks;
  VirtualOptions options{.device = kCuda};
  options.group.kind = "nccl";
  return options;
}

/// What run_ranks throws.
std::string failure(int ranks, const std::function<void(ProcessGroup&)>& body, const VirtualOptions& options) {
  try {
    run_ranks(ranks, body, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class NcclGroups : public ::testing::TestWithParam<std::tuple<const char*, int, size_t>> {};

TEST_P(NcclGroups, Case) {
  auto [sums, ranks, index] = GetParam();
  setenv("SHARDGRAD_NCCL_SUMS", sums, 1);
  VirtualOptions options = nccl(ranks);
  run_ranks(ranks, group_cases()[index].run, options);
  unsetenv("SHARDGRAD_NCCL_SUMS");
  EXPECT_EQ(fake_nccl::alive(), 0);
  EXPECT_EQ(fake_nccl::aborted(), 0) << "all leave in good order";
  EXPECT_EQ(fake_cuda::alive(), 0);
}

std::string name_of_case(const ::testing::TestParamInfo<NcclGroups::ParamType>& info) {
  const auto& [sums, ranks, index] = info.param;
  return concat(sums, "_", ranks, "_", group_cases()[index].name);
}
INSTANTIATE_TEST_SUITE_P(All, NcclGroups,
                         ::testing::Combine(::testing::Values("nccl", "tree"), ::testing::Values(1, 2, 3, 4),
                                            ::testing::Range(size_t(0), group_cases().size())),
                         name_of_case);

/// A tensor of the GPU.
Tensor on_gpu(ProcessGroup&) { return empty({100}, {DType::f32, kCuda}); }

TEST(Nccl, TrainingWithEveryStrategyGivesTheBitsOfTheCpu) {
  for (int world : {2, 3}) {
    nccl(world);
    fsdp::testing::TrainingRun setup{.world = world, .steps = 4, .group = "threads"};
    fsdp::testing::Outcome expected = fsdp::testing::train<fsdp::testing::Chain>(setup);
    setup.device = kCuda;
    setup.group = "nccl";
    for (const fsdp::Config& config : fsdp::testing::strategies(world)) {
      setup.config = config;
      EXPECT_TRUE(fsdp::testing::train<fsdp::testing::Chain>(setup) == expected) << name_of(config.strategy);
    }
  }
  EXPECT_EQ(fake_nccl::alive(), 0);
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST(Nccl, ABrokenConnectionEndsEveryRankWithNcclsOwnWordWhenNobodyKnowsMore) {
  VirtualOptions options = nccl(3);
  std::string text = failure(
      3,
      [](ProcessGroup& group) {
        group.all_reduce(on_gpu(group)).host_wait();
        if (group.rank() == 0) {
          for (int r : {1, 2})
            while (group.control().whereabouts_of(r).find("in all_reduce #2") != 0) std::this_thread::sleep_for(1ms);
          fake_nccl::break_connections_of(1, ncclRemoteError);
          std::this_thread::sleep_for(4s);
        }
        group.all_reduce(on_gpu(group), Label{"layers.0", "backward"}).host_wait();
      },
      options);
  EXPECT_NE(text.find("NCCL 2.28.9 failed in all_reduce #2 of unit 'layers.0' in backward (100 f32): remote process "
                      "exited (pretended)"),
            text.npos)
      << text;
  EXPECT_GE(fake_nccl::aborted(), 2);
  EXPECT_EQ(fake_nccl::alive(), 0);
}

TEST(Nccl, ARankThatFailsEndsTheOthersWaitsAndIsNamed) {
  VirtualOptions options = nccl(3);
  auto begin = std::chrono::steady_clock::now();
  std::string text = failure(
      3,
      [](ProcessGroup& group) {
        for (int i = 0; i < 5; ++i) {
          if (i == 3 && group.rank() == 1) fail("label 11 of sample 5");
          group.all_reduce(on_gpu(group)).host_wait();
        }
      },
      options);
  EXPECT_EQ(text, "label 11 of sample 5");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_EQ(fake_nccl::aborted(), 3) << "kernels that wait for it are ended on every GPU";
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST(Nccl, RanksInDifferentCallsAreNamed) {
  VirtualOptions options = nccl(2);
  std::string text = failure(
      2,
      [](ProcessGroup& group) {
        Tensor t = on_gpu(group);
        group.all_reduce(t);
        group.rank() == 0 ? group.all_reduce(t) : group.broadcast(t, 0);
        for (int i = 0; i < 3; ++i) group.all_reduce(t);  // the host runs ahead
        group.barrier();
      },
      options);
  EXPECT_NE(text.find("the ranks have diverged: rank 0 in all_reduce #2"), text.npos) << text;
  EXPECT_NE(text.find("rank 1 in broadcast #2"), text.npos) << text;
}

TEST(Nccl, ALateRankIsWarnedOfAndThenEndsTheJobByName) {
  VirtualOptions options = nccl(2);
  std::mutex mutex;
  std::string warnings;
  options.watch.warn_after = 300ms;
  options.watch.warn_again = 300ms;
  options.watch.stall_limit = 1500ms;
  options.watch.warn = [&](const std::string& text) {
    std::lock_guard lock(mutex);
    warnings += text;
  };
  std::string text = failure(
      2,
      [](ProcessGroup& group) {
        group.barrier();
        for (int i = 0; i < 3000 && group.rank() == 1; ++i) {
          context().check_abort();
          std::this_thread::sleep_for(10ms);
        }
        group.all_reduce(on_gpu(group), Label{"norm", "forward"}).host_wait();
      },
      options);
  EXPECT_NE(warnings.find("rank 0 in all_reduce #2 of unit 'norm'"), text.npos) << warnings;
  EXPECT_NE(warnings.find("rank 1 computing, last in barrier #1"), text.npos) << warnings;
  EXPECT_NE(text.find("stall_limit is reached"), text.npos) << text;
  EXPECT_NE(text.find("rank 1 computing, last in barrier #1"), text.npos) << text;
  EXPECT_EQ(fake_nccl::aborted(), 2);
}

// A rank learns a moment after the GPU that a call has ended. One that has left the group by then was there.
TEST(Nccl, ARankThatLeavesAsSoonAsItsCallsAreDoneIsNotTakenForOneThatHasDiverged) {
  for (int attempt = 0; attempt < 30; ++attempt) {
    VirtualOptions options = nccl(3);
    options.watch.beat = 0ms;
    std::string text = failure(
        3,
        [](ProcessGroup& group) {
          Tensor t = on_gpu(group);
          for (int i = 0; i < 3; ++i) group.all_reduce(t);
          auto half = group.split(0, group.rank(), "half");
          for (int i = 0; i < 3; ++i) half->all_reduce(t);
        },
        options);
    ASSERT_EQ(text, "");
  }
}

// NCCL's abort waits for the other ranks of the machine, which wait for this one in another group.
TEST(Nccl, AnExceptionThatPassesThroughASplitGroupEndsTheJobWithItsText) {
  for (bool in_half : {false, true}) {
    VirtualOptions options = nccl(3);
    auto begin = std::chrono::steady_clock::now();
    std::string text = failure(
        3,
        [&](ProcessGroup& group) {
          auto half = group.split(0, group.rank(), "half");
          half->all_reduce(on_gpu(group)).host_wait();
          if (group.rank() == 0) fail("label 11 of sample 5");
          (in_half ? *half : group).all_reduce(on_gpu(group)).host_wait();
        },
        options);
    EXPECT_EQ(text, "label 11 of sample 5");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);
  }
  EXPECT_EQ(fake_nccl::alive(), 0);
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// A copy to the host holds the rank within the call itself, before it can wait for it.
TEST(Nccl, RanksThatAreHeldWithinCallsOfDifferentGroupsAreNamed) {
  VirtualOptions options = nccl(2);
  options.watch.stall_limit = 5s;
  std::string text = failure(
      2,
      [](ProcessGroup& group) {
        auto first = group.split(0, 0), second = group.split(0, 0);
        if (group.rank() == 1) std::swap(first, second);
        Tensor on_host = empty({4}, {DType::f32, kCpu});
        first->all_reduce(on_host, Label{"norm", "step"});
        second->all_reduce(on_host);
      },
      options);
  EXPECT_NE(text.find("the ranks wait for each other in different groups: rank 0 in all_reduce #1 of unit 'norm'"),
            text.npos)
      << text;
  EXPECT_EQ(fake_nccl::alive(), 0);
}

TEST(Nccl, AnExceptionOfAForeignTypeEndsTheJobToo) {
  VirtualOptions options = nccl(2);
  auto body = [](ProcessGroup& group) {
    auto half = group.split(0, group.rank(), "half");
    if (group.rank() == 1) throw std::out_of_range("label 11 of sample 5");
    group.all_reduce(on_gpu(group)).host_wait();
  };
  EXPECT_THROW(run_ranks(2, body, options), std::out_of_range);
}

TEST(Nccl, RanksMayLeaveAGroupAtDifferentTimes) {
  VirtualOptions options = nccl(2);
  run_ranks(
      2,
      [](ProcessGroup& group) {
        auto half = group.split(0, group.rank(), "half");
        if (group.rank() == 0) half.reset();
        group.barrier();
      },
      options);
  EXPECT_EQ(fake_nccl::aborted(), 0);
}

TEST(Nccl, ACallThatNcclRefusesIsNamed) {
  VirtualOptions options = nccl(2);
  std::string text = failure(
      2,
      [](ProcessGroup& group) {
        group.barrier();
        if (group.rank() == 0) fake_nccl::fail_call("ncclBroadcast", 1, ncclInvalidArgument);
        group.barrier();
        group.broadcast(on_gpu(group), 0).host_wait();
      },
      options);
  EXPECT_NE(text.find("NCCL 2.28.9 failed in broadcast: an error (pretended)"), text.npos) << text;
}

TEST(Nccl, ARankThatCannotConnectEndsTheStartOfAll) {
  VirtualOptions options = nccl(2);
  fake_nccl::fail_call("ncclCommInitRankConfig", 2, ncclSystemError);
  std::string text = failure(
      2, [](ProcessGroup&) { ADD_FAILURE() << "must not start"; }, options);
  EXPECT_NE(text.find("NCCL 2.28.9 cannot connect rank "), text.npos) << text;
  EXPECT_NE(text.find("unhandled system error"), text.npos) << text;
  EXPECT_NE(text.find("NCCL_DEBUG=INFO"), text.npos) << text;
  EXPECT_EQ(fake_nccl::alive(), 0);
}

TEST(Nccl, MoreRanksThanGpusAreRefusedWithTheChoices) {
  VirtualOptions options = nccl(3);
  options.group.kind = "threads";
  fake_cuda::machine().gpus = 2;
  std::shared_ptr<void> memory(std::calloc(1, local_bootstrap_bytes(3)), std::free);
  auto check = [&](ProcessGroup& group) { check_gpus(*make_local_bootstrap("forked", memory, group.rank(), 3)); };
  std::string text = failure(3, check, options);
  EXPECT_NE(text.find("ranks 0 and 2 share GPU 0000:01:00.0 of machine 0, where 3 ranks see 2 GPUs"), text.npos)
      << text;
  for (const char* choice :
       {"as many ranks as GPUs", "SHARDGRAD_GROUP=shared_memory", "two_level (several)", "SHARDGRAD_NCCL_SHARE_GPU=1"})
    EXPECT_NE(text.find(choice), text.npos) << text;
  setenv("SHARDGRAD_NCCL_SHARE_GPU", "1", 1);
  EXPECT_EQ(failure(3, check, options), "");
  setenv("SHARDGRAD_NCCL_SHARE_GPU", "yes", 1);
  EXPECT_NE(failure(3, check, options).find("SHARDGRAD_NCCL_SHARE_GPU is 'yes'; choose 0, 1, or unset it"), text.npos);
  unsetenv("SHARDGRAD_NCCL_SHARE_GPU");
}

TEST(Nccl, AnUnknownOrderOfSumsIsRefusedWithTheList) {
  setenv("SHARDGRAD_NCCL_SUMS", "ring", 1);
  std::string text = failure(
      2, [](ProcessGroup&) { ADD_FAILURE() << "must not start"; }, nccl(2));
  unsetenv("SHARDGRAD_NCCL_SUMS");
  EXPECT_NE(text.find("SHARDGRAD_NCCL_SUMS is 'ring'; choose nccl, tree, or unset it"), text.npos) << text;
}

TEST(Nccl, GrainsNeedTheTreesOrder) {
  train::Config config;
  config.grains = 4;
  auto check = [&](ProcessGroup& world) { train::check_grains(config, world); };
  EXPECT_NE(failure(2, check, nccl(2)).find("set SHARDGRAD_NCCL_SUMS=tree, or leave grains out"), std::string::npos);
  setenv("SHARDGRAD_NCCL_SUMS", "tree", 1);
  run_ranks(2, check, nccl(2));
  unsetenv("SHARDGRAD_NCCL_SUMS");
}

// NCCL tells ranks of one machine apart by their processes: the setting that lets processes share a GPU does not help.
TEST(Nccl, RanksThatAreThreadsNeverShareAGpu) {
  VirtualOptions options = nccl(3);
  fake_cuda::machine().gpus = 2;
  setenv("SHARDGRAD_NCCL_SHARE_GPU", "1", 1);
  std::string text = failure(
      3, [](ProcessGroup&) { ADD_FAILURE() << "must not start"; }, options);
  unsetenv("SHARDGRAD_NCCL_SHARE_GPU");
  EXPECT_NE(text.find("ranks 0 and 2 share GPU"), text.npos) << text;
  EXPECT_NE(text.find("as many ranks as GPUs; or group.kind = \"threads\""), text.npos) << text;
}

TEST(Nccl, ADeviceWithoutAGpuIsRefused) {
  VirtualOptions options = nccl(2);
  options.device = kCpu;
  EXPECT_NE(failure(
                2, [](ProcessGroup&) {}, options)
                .find("the device is cpu"),
            std::string::npos);
}

TEST(Nccl, ItsVersionIsKnownAndOneRankCanTryIt) {
  nccl(1);
  EXPECT_EQ(nccl_library(), "NCCL 2.28.9");
  try_nccl(0);
  fake_nccl::fail_call("ncclCommInitRankConfig", 1, ncclUnhandledCudaError);
  fake_cuda::machine().driver = 0;
  EXPECT_THROW(try_nccl(0), Error);
  EXPECT_EQ(fake_nccl::alive(), 0);
}

// Before 2.26 two groups on a GPU could wait for each other for ever.
TEST(Nccl, AnOldOneIsRefusedBeforeItCanHang) {
  VirtualOptions options = nccl(2);
  fake_nccl::set_version(22507);
  std::string text = failure(
      2, [](ProcessGroup&) { ADD_FAILURE() << "must not start"; }, options);
  EXPECT_NE(text.find("NCCL 2.25.7 is too old: 2.26 or newer is needed"), text.npos) << text;
  EXPECT_NE(text.find("LD_LIBRARY_PATH"), text.npos) << text;
  EXPECT_EQ(fake_nccl::alive(), 0);
  EXPECT_NE(text.find(why_not_nccl()), text.npos) << text;
}

// The pretended header is that of 2.27.3.
TEST(Nccl, ALibraryThatDoesNotFitTheHeaderIsRefused) {
  VirtualOptions options = nccl(2);
  fake_nccl::set_version(22605);
  std::string text = failure(
      2, [](ProcessGroup&) { ADD_FAILURE() << "must not start"; }, options);
  EXPECT_NE(text.find("NCCL 2.26.5 is loaded, but this build was made with NCCL 2.27.3"), text.npos) << text;
  for (const char* word : {"an older one lacks", "LD_LIBRARY_PATH", "SHARDGRAD_GROUP"})
    EXPECT_NE(text.find(word), text.npos) << text;
  EXPECT_EQ(fake_nccl::alive(), 0);
  fake_nccl::set_version(30001);
  for (const char* word : {"NCCL 3.0.1 is loaded", "another major version"})
    EXPECT_NE(why_not_nccl().find(word), text.npos) << word;
  for (int version : {22700, 22703, 22809}) {
    fake_nccl::set_version(version);
    EXPECT_EQ(why_not_nccl(), "") << version;
  }
}

}  // namespace
}  // namespace shardgrad::dist::testing
