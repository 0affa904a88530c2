// Device cuda on a pretended GPU: the sources of core/ compiled against the cuda_runtime.h of this folder.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/cuda/error.h>
#include <shardgrad/core/cuda/memory.h>
#include <shardgrad/core/cuda/survey.h>
#include <shardgrad/dist/group/virtual_ranks.h>

#include "tests/fake_cuda/fake_cuda.h"

namespace shardgrad {
namespace {

using namespace std::chrono_literals;

class BackendCuda : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda::reset(); }
  void TearDown() override {
    unsetenv("SHARDGRAD_CHECK");
    visible_ ? setenv("CUDA_VISIBLE_DEVICES", visible_->c_str(), 1) : unsetenv("CUDA_VISIBLE_DEVICES");
    fake_cuda::reset();
  }

 private:
  static std::optional<std::string> variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  }
  std::optional<std::string> visible_ = variable("CUDA_VISIBLE_DEVICES");
};

template <class Work> Error error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::internal, ""};
}

void expect_says(const Error& error, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks: " << part;
}

cudaStream_t handle(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

// A piece of work that runs on `stream` when its turn comes, as a kernel does.
void queue(Stream& stream, const char* label, std::function<void()> work) {
  stream.run(label, [&] { fake_cuda::launch(handle(stream), work); });
}

TEST_F(BackendCuda, TensorsGoThereAndComeBack) {
  Context context({.device = kCuda});
  Tensor x = from_vector<float>({1, 2, 3}, {3});
  EXPECT_EQ(x.device(), kCuda);
  EXPECT_THROW(x.data<float>(), Error);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3}));
  Tensor y = empty_like(x), z = from_vector<float>({4, 5, 6}, {3}, {DType::f32, kCpu});
  copy_into(y, x);
  copy_into(x, z);
  copy_into(z, y);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(z.to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

TEST_F(BackendCuda, AnEmulatedDeviceAndTheGpuWaitForEachOthersWork) {
  Context context({.device = kCuda});
  Tensor on_acc = from_vector<float>({0}, {1}, {DType::f32, kAcc}), on_gpu = from_vector<float>({0}, {1});
  float* place = on_acc.out().as<float>();
  context.backend(kAcc).compute().run("late write", [=] { std::this_thread::sleep_for(20ms), *place = 7; });
  copy_into(on_gpu, on_acc);
  EXPECT_EQ(on_gpu.item(), 7);
  float* there = on_gpu.out().as<float>();
  queue(context.backend(kCuda).compute(), "late write", [=] { std::this_thread::sleep_for(20ms), *there = 8; });
  copy_into(on_acc, on_gpu);
  EXPECT_EQ(on_acc.item(), 8);
}

TEST_F(BackendCuda, EverythingIsGivenBackAtTheEnd) {
  {
    Context context({.device = kCuda});
    Tensor x = from_vector<float>({1, 2, 3}, {3});
    auto other = context.backend(kCuda).make_stream("other");
    other->wait(context.backend(kCuda).compute().record());
    Ref<Allocator> pinned = context.backend(kCuda).host_memory();
    pinned->free(pinned->allocate(1000, context.backend(kCpu).compute()), context.backend(kCpu).compute());
    EXPECT_GT(fake_cuda::alive(), 0);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST_F(BackendCuda, WhatAStreamFreesItGetsAgainWithoutAnEventOrAQuestionToTheGpu) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  queue(gpu.compute(), "slow", [] { std::this_thread::sleep_for(20ms); });
  for (size_t bytes : {size_t(1000), size_t(4) << 20}) {
    MemoryBlock block = gpu.memory()->allocate(bytes, gpu.compute());
    gpu.memory()->free(block, gpu.compute());
    MemoryBlock again = gpu.memory()->allocate(bytes, gpu.compute());
    EXPECT_EQ(again.data, block.data);
    EXPECT_EQ(fake_cuda::calls("cudaEventQuery"), 0) << bytes;
    EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), 0) << bytes;
    gpu.memory()->free(again, gpu.compute());
  }
}

// As gathered parameters are: communication allocates them, compute uses and frees them, and goes on.
TEST_F(BackendCuda, WhatComesFromAnotherStreamGoesBackToItWithoutWaitingForLaterWork) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  auto other = gpu.make_stream("other");
  std::atomic<bool> go{false};
  for (size_t bytes : {size_t(1000), size_t(64) << 20}) {  // of which a chunk has room for one
    go = false;
    int64_t recorded = fake_cuda::calls("cudaEventRecord");
    MemoryBlock block = gpu.memory()->allocate(bytes, *other);
    queue(gpu.compute(), "use", [] {});
    gpu.memory()->free(block, gpu.compute());
    EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), recorded + 1);
    queue(gpu.compute(), "later", [&] {
      while (!go) std::this_thread::sleep_for(1ms);
    });
    MemoryBlock again = gpu.memory()->allocate(bytes, *other);
    EXPECT_EQ(again.data, block.data);
    EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), recorded + 1) << "one event for a transfer between streams";
    other->synchronize();
    go = true;
    gpu.compute().synchronize();
    gpu.memory()->free(again, *other);
  }
  EXPECT_EQ(fake_cuda::calls("cudaStreamWaitEvent"), 2);
}

TEST_F(BackendCuda, AMarkIsRecordedByWhoAsksAndHasHappenedWhenItsStreamHasGone) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  auto stream = gpu.make_stream("other");
  std::atomic<bool> go{false};
  queue(*stream, "stuck", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  Event asked = stream->mark(), never_asked = stream->mark();
  EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), 0);
  EXPECT_FALSE(asked.done());
  EXPECT_FALSE(stream->record().done());
  EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), 1) << "the same point";
  queue(*stream, "more", [] {});
  Event later = stream->mark();
  go = true;
  stream.reset();
  EXPECT_TRUE(asked.done() && never_asked.done() && later.done());
  gpu.compute().wait(later);
  later.host_wait();
  EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), 1);
}

// Work may free memory before it is queued itself, and another thread may queue and record meanwhile.
TEST_F(BackendCuda, AMarkMadeWithinWorkStandsAfterThatWork) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  auto native = static_cast<cudaStream_t>(compute.native());
  std::atomic<bool> go{false};
  Event mark;
  compute.run("frees first", [&] {
    mark = compute.mark();
    std::thread([&] {
      ContextScope scope(context);
      queue(compute, "other", [] {});
      compute.record();
    }).join();
    fake_cuda::launch(native, [&] {
      while (!go) std::this_thread::sleep_for(1ms);
    });
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(mark.done());
  go = true;
  mark.host_wait();
}

TEST_F(BackendCuda, AnEventThatStandsAfterAMarkStandsForIt) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  queue(compute, "one", [] {});
  Event mark = compute.mark();
  queue(compute, "two", [] {});
  Event later = compute.record();
  int64_t recorded = fake_cuda::calls("cudaEventRecord");
  mark.host_wait();
  EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), recorded);
  std::atomic<bool> go{false};
  queue(compute, "three", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  EXPECT_FALSE(compute.mark().done()) << "that one is not after it";
  go = true;
  compute.synchronize();
}

TEST_F(BackendCuda, TransfersGoFirstWhereComputeTakesAllRoom) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  EXPECT_EQ(fake_cuda::priority_of(handle(gpu.compute())), 0);
  EXPECT_EQ(fake_cuda::priority_of(handle(*gpu.make_stream("copies"))), -5);
}

TEST_F(BackendCuda, ATensorMayOutliveItsContext) {
  Tensor kept;
  {
    Context context({.device = kCuda});
    kept = from_vector<float>({1}, {1});
  }
  kept = Tensor();
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST_F(BackendCuda, AnEventOrdersTwoStreams) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  auto other = gpu.make_stream("other");
  std::atomic<int> value{0};
  int seen = -1;
  queue(gpu.compute(), "slow write", [&] { std::this_thread::sleep_for(20ms), value = 7; });
  other->wait(gpu.compute().record());
  queue(*other, "read", [&] { seen = value; });
  other->synchronize();
  EXPECT_EQ(seen, 7);
}

TEST_F(BackendCuda, ANoteIsCalledWhenTheStreamGetsThereAndTheHostGoesOn) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  std::atomic<bool> go{false}, done{false}, noted{false}, noted_after{false};
  queue(compute, "work", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
    done = true;
  });
  compute.notify([&] { noted = true, noted_after = done.load(); });
  EXPECT_FALSE(noted) << "the work before it waits for the host, which did not wait";
  go = true;
  compute.synchronize();
  EXPECT_TRUE(noted && noted_after);
}

TEST_F(BackendCuda, ATimerTimesTheDeviceAndNotTheHost) {
  {
    Context context({.device = kCuda});
    Stream& compute = context.backend(kCuda).compute();
    auto timer = compute.make_timer();
    std::chrono::steady_clock::time_point before, after;
    queue(compute, "before", [&] { std::this_thread::sleep_for(20ms), before = std::chrono::steady_clock::now(); });
    timer->start();
    queue(compute, "timed", [] { std::this_thread::sleep_for(20ms); });
    timer->stop();
    queue(compute, "after", [&] { after = std::chrono::steady_clock::now(), std::this_thread::sleep_for(20ms); });
    double seconds = timer->seconds();
    EXPECT_GE(seconds, 0.019) << "an event's time is a float";
    EXPECT_LE(seconds, 1e-3 + std::chrono::duration<double>(after - before).count());
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST_F(BackendCuda, WorkQueuedAfterAnEventIsNotPartOfIt) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  std::atomic<bool> go{false};
  Event before = compute.record();
  queue(compute, "stuck", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  Event after = compute.record();
  before.host_wait();
  EXPECT_FALSE(after.done());
  go = true;
  after.host_wait();
  EXPECT_TRUE(after.done());
}

TEST_F(BackendCuda, ThreadStreamsAndTheGpuWaitForEachOther) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  auto host = make_thread_stream(context, "host");
  std::vector<int> order;
  host->run("first", [&] { std::this_thread::sleep_for(10ms), order.push_back(1); });
  compute.wait(host->record());
  queue(compute, "second", [&] { std::this_thread::sleep_for(10ms), order.push_back(2); });
  host->wait(compute.record());
  host->run("third", [&] { order.push_back(3); });
  host->synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(BackendCuda, AnAbortEndsAWaitForTheGpu) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  std::atomic<bool> go{false};
  queue(compute, "stuck", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  context.abort(std::make_exception_ptr(Error(ErrorKind::rank_failed, "rank 3 died")));
  EXPECT_EQ(error_of([&] { compute.synchronize(); }).kind(), ErrorKind::rank_failed);
  go = true;
}

TEST_F(BackendCuda, AFreedBlockGoesToAnotherStreamOnlyAfterItsLastUse) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  auto other = gpu.make_stream("other");
  std::atomic<bool> go{false};
  std::atomic<int> uses{0};
  int seen = -1;
  MemoryBlock block = gpu.memory()->allocate(4096, gpu.compute());
  queue(gpu.compute(), "use", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
    ++uses;
  });
  gpu.memory()->free(block, gpu.compute());
  MemoryBlock again = gpu.memory()->allocate(4096, *other);
  ASSERT_EQ(again.data, block.data);
  queue(*other, "next use", [&] { seen = uses; });
  std::this_thread::sleep_for(5ms);
  go = true;
  other->synchronize();
  EXPECT_EQ(seen, 1);
  gpu.memory()->free(again, *other);
}

TEST_F(BackendCuda, StreamsMayComeAndGoUnderTheChecker) {
  Context context({.device = kCuda, .check_streams = true});
  Backend& gpu = context.backend(kCuda);
  for (int round = 0; round < 50; ++round) {
    auto stream = gpu.make_stream("copies");
    MemoryBlock block = gpu.memory()->allocate(4096, *stream);
    Access access{block.data, block.bytes, true};
    stream->run("copy", [] {}, {&access, 1});
    gpu.memory()->free(block, *stream);
  }
}

// A kernel's scratch memory is freed between two launches of one piece of work.
TEST_F(BackendCuda, MemoryFreedWithinAPieceOfWorkWaitsForItsOwnLaunches) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  auto other = gpu.make_stream("other");
  std::atomic<bool> go{false};
  std::atomic<int> uses{0};
  int seen = -1;
  MemoryBlock first = gpu.memory()->allocate(64, gpu.compute()), second = gpu.memory()->allocate(4096, gpu.compute());
  gpu.compute().run("two launches", [&] {
    gpu.memory()->free(first, gpu.compute());
    fake_cuda::launch(handle(gpu.compute()), [&] {
      while (!go) std::this_thread::sleep_for(1ms);
      ++uses;
    });
    gpu.memory()->free(second, gpu.compute());
  });
  MemoryBlock again = gpu.memory()->allocate(4096, *other);
  ASSERT_EQ(again.data, second.data);
  queue(*other, "next use", [&] { seen = uses; });
  std::this_thread::sleep_for(5ms);
  go = true;
  other->synchronize();
  EXPECT_EQ(seen, 1);
  gpu.memory()->free(again, *other);
}

// Only when the wait is queued may later events be taken for ones after it.
TEST_F(BackendCuda, AnEventThatIsRecordedWhileAWaitIsQueuedDoesNotStandForLaterOnes) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  auto other = context.backend(kCuda).make_stream("other");
  std::atomic<bool> go{false};
  queue(*other, "stuck", [&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  fake_cuda::on_call("cudaStreamWaitEvent", [&] { compute.record(); });
  compute.wait(other->record());
  Event after = compute.record();
  std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(after.done());
  go = true;
  after.host_wait();
}

TEST_F(BackendCuda, WorkThatThrowsLeavesTheStreamAsItWas) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  EXPECT_THROW(compute.run("bad", [] { fail("refused"); }), Error);
  EXPECT_EQ(fake_cuda::open_ranges(), 0);
  compute.record();
  int64_t recorded = fake_cuda::calls("cudaEventRecord");
  compute.record();
  EXPECT_EQ(fake_cuda::calls("cudaEventRecord"), recorded) << "nothing was queued since";
}

TEST_F(BackendCuda, AFailedCallIsNotBlamedOnTheNextOperation) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  Tensor x = from_vector<float>({1, 2}, {2}), y = empty_like(x);
  fake_cuda::fail_call("cudaMemcpyAsync", 1, cudaErrorInvalidValue);
  expect_says(error_of([&] { copy_into(y, x); }), {"copying 8 bytes"});
  EXPECT_NO_THROW(gpu.compute().run("next", [] {}));
}

TEST_F(BackendCuda, PinnedMemoryThatTheHostGivesBackWaitsForEveryStreamOfTheGpu) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  Stream& host = context.backend(kCpu).compute();
  auto copies = gpu.make_stream("copies");
  std::atomic<bool> go{false};
  for (size_t bytes : {size_t(4096), size_t(2) << 20}) {
    go = false;
    MemoryBlock block = gpu.host_memory()->allocate(bytes, host);
    queue(*copies, "use", [&] {
      while (!go) std::this_thread::sleep_for(1ms);
    });
    gpu.host_memory()->free(block, host);
    MemoryBlock meanwhile = gpu.host_memory()->allocate(bytes, host);
    EXPECT_NE(meanwhile.data, block.data) << bytes << " bytes";
    go = true;
    copies->synchronize();
    gpu.compute().synchronize();
    MemoryBlock later = gpu.host_memory()->allocate(bytes, host);
    EXPECT_EQ(later.data, block.data) << bytes << " bytes";
    gpu.host_memory()->free(meanwhile, host);
    gpu.host_memory()->free(later, host);
    gpu.compute().synchronize();
  }
}

TEST_F(BackendCuda, RepeatedStepsAskTheDriverForNothing) {
  Context context({.device = kCuda});
  Backend& gpu = context.backend(kCuda);
  auto step = [&] {
    std::vector<Tensor> held;
    for (int64_t n : {1000, 300000, 5, 2000000, 40000, 7000000, 1000, 123456}) held.push_back(empty({n}));
    for (int64_t n : {3000000, 20, 500000}) empty({n});
  };
  step();
  int64_t asked = gpu.info().memory_requests;
  EXPECT_GE(asked, 1);
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(gpu.info().memory_requests, asked);
  EXPECT_EQ(fake_cuda::calls("cudaMalloc"), asked);
  EXPECT_EQ(fake_cuda::calls("cudaFree"), 0);
}

TEST_F(BackendCuda, OutOfMemoryNamesWhatWasAskedWhatIsFreeAndTheLargestOwners) {
  fake_cuda::machine().memory = size_t(256) << 20;
  Context context({.device = kCuda});
  TagScope scope({Category::named<"optimizer_state">, context.ledger().unit_id("layer7")});
  Tensor held = empty({30 << 20}, DType::u8);
  Error error = error_of([] { empty({int64_t(1) << 30}, DType::u8); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  expect_says(error,
              {"1073741824 bytes on cuda", "of 268435456 bytes free", "optimizer_state of 'layer7' 31457280 bytes"});
  Tensor column = empty({20000, 1}), row = empty({1, 20000});
  expect_says(error_of([&] { column* row; }), {"mul, for f32[20000, 20000]: optimizer_state of 'layer7' on rank 0: "
                                               "out of memory: 1600000000 bytes on cuda"});
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // or the next launch would be blamed
  EXPECT_EQ(empty({3}).numel(), 3);
  EXPECT_NO_THROW(held.to_vector<uint8_t>());
}

TEST_F(BackendCuda, HostMemoryThatCannotBePinnedIsAnError) {
  fake_cuda::machine().pins = false;
  Context context({.device = kCuda});
  auto pin = [&] { context.backend(kCuda).host_memory()->allocate(8, context.backend(kCpu).compute()); };
  expect_says(error_of(pin), {"8 bytes on cpu", "the host cannot pin more memory"});
}

TEST_F(BackendCuda, ChunksThatAreFreeGoBackBeforeMemoryRunsOut) {
  fake_cuda::machine().memory = size_t(256) << 20;
  Context context({.device = kCuda});
  empty({200 << 20}, DType::u8);
  context.backend(kCuda).compute().synchronize();
  EXPECT_NO_THROW(empty({230 << 20}, DType::u8));
}

TEST_F(BackendCuda, NothingIsThereToRunOn) {
  Context context;
  auto use = [&] { return error_of([&] { context.backend(kCuda); }); };
  fake_cuda::machine().driver = 0;
  EXPECT_EQ(use().kind(), ErrorKind::missing);
  expect_says(use(), {"no CUDA device: no NVIDIA driver is loaded"});
  EXPECT_EQ(cuda_device_count(), 0);
  fake_cuda::machine().driver = 12040;
  expect_says(use(), {"the NVIDIA driver supports CUDA 12.4, this build needs 13.0; update the driver"});
  fake_cuda::machine() = {.gpus = 0};
  EXPECT_EQ(use().kind(), ErrorKind::missing);
  expect_says(use(), {"no CUDA device: none is visible"});
  EXPECT_EQ(cuda_device_count(), 0);
  fake_cuda::machine() = {};
  EXPECT_EQ(cuda_device_count(), 1);
  EXPECT_NO_THROW(context.backend(kCuda));
}

TEST_F(BackendCuda, WhatHidesTheGpusIsShown) {
  Context context;
  fake_cuda::machine() = {.gpus = 0};
  auto use = [&] { return error_of([&] { context.backend(kCuda); }); };
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  expect_says(use(), {"no CUDA device: none is visible, for CUDA_VISIBLE_DEVICES is '',"});
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  EXPECT_EQ(use().kind(), ErrorKind::missing);
  expect_says(use(), {"CUDA_VISIBLE_DEVICES is '7', which begins with no GPU of this machine", "nvidia-smi -L"});
  EXPECT_EQ(survey_cuda().why_not, use().what());
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_STREQ(use().what(), "no CUDA device: none is visible");
}

TEST_F(BackendCuda, CodeForAnotherGpuIsRefusedAtTheStart) {
  fake_cuda::machine().capability = 86;
  Context context;
  Error error = error_of([&] { context.backend(kCuda); });
  EXPECT_EQ(error.kind(), ErrorKind::missing);
  expect_says(error, {"GPU code for 90,", "it needs 86", "-DCMAKE_CUDA_ARCHITECTURES=86"});
}

TEST_F(BackendCuda, AGpuThatIsTooOldForEveryBuildIsRefusedAsThat) {
  fake_cuda::machine().capability = 75;
  Context context;
  Error error = error_of([&] { context.backend(kCuda); });
  EXPECT_EQ(error.kind(), ErrorKind::missing);
  expect_says(error, {"compute capability 7.5", "needs 8.0 or newer", "device=cpu"});
}

TEST_F(BackendCuda, ASurveySaysOfEveryGpuWhetherThisBuildCanUseIt) {
  fake_cuda::machine() = {.gpus = 2, .capability = 90};
  CudaSurvey survey = survey_cuda();
  EXPECT_TRUE(survey.built);
  EXPECT_EQ(survey.driver, fake_cuda::machine().driver);
  EXPECT_EQ(survey.why_not, "");
  ASSERT_EQ(survey.gpus.size(), 2u);
  EXPECT_EQ(survey.gpus[1].name, "pretended GPU");
  EXPECT_EQ(survey.gpus[1].capability, 90);
  EXPECT_EQ(survey.gpus[1].bytes, fake_cuda::machine().memory);
  EXPECT_EQ(survey.gpus[1].why_not, "");
  fake_cuda::machine().capability = 86;
  EXPECT_NE(survey_cuda().gpus[0].why_not.find("GPU code for 90,"), std::string::npos);
  fake_cuda::machine().driver = 12040;
  EXPECT_TRUE(survey_cuda().gpus.empty());
  EXPECT_EQ(survey_cuda().why_not,
            "no CUDA device: the NVIDIA driver supports CUDA 12.4, this build needs 13.0; update the driver");
}

TEST(CudaArchitectures, MachineCodeRunsWithinItsFamilyAndPtxOnNewerGpus) {
  EXPECT_TRUE(runs_on("90", 90));
  EXPECT_TRUE(runs_on("80-real", 86));
  EXPECT_FALSE(runs_on("86-real", 80));
  EXPECT_FALSE(runs_on("80-real", 90));
  EXPECT_TRUE(runs_on("80", 90));
  EXPECT_TRUE(runs_on("80-virtual", 100));
  EXPECT_FALSE(runs_on("90-virtual", 80));
  EXPECT_TRUE(runs_on("90a", 90));
  EXPECT_FALSE(runs_on("90a", 100));
  EXPECT_TRUE(runs_on("80-real;86-real;90", 89));
  EXPECT_FALSE(runs_on("", 90));
}

TEST_F(BackendCuda, RanksTakeTheGpusInTurn) {
  fake_cuda::machine().gpus = 2;
  Context context({.rank = 3, .world_size = 4});
  EXPECT_EQ(context.backend(kCuda).info().name, "pretended GPU");
  EXPECT_EQ(fake_cuda::current_device(), 1);
}

// Whatever is the first that asks CUDA, for then CUDA reads the variable.
TEST_F(BackendCuda, EveryStreamGetsAConnectionToTheGpuWhereNobodySaysHowMany) {
  constexpr const char* variable = "CUDA_DEVICE_MAX_CONNECTIONS";
  const std::function<void()> first_calls[] = {[] { cuda_device_count(); }, [] { survey_cuda(); },
                                               [] { Context({.device = kCuda}).backend(kCuda); }};
  for (const auto& call : first_calls) {
    unsetenv(variable);
    call();
    EXPECT_STREQ(std::getenv(variable), "32");
    setenv(variable, "1", 1);
    call();
    EXPECT_STREQ(std::getenv(variable), "1");
  }
  unsetenv(variable);
}

TEST_F(BackendCuda, AThreadThatWaitsForAGpuUsesNoOther) {
  fake_cuda::machine().gpus = 2;
  Context context({.rank = 1, .world_size = 2});
  Event event = context.backend(kCuda).compute().record();
  std::thread([&] {
    event.host_wait();
    EXPECT_EQ(fake_cuda::current_device(), 1);
  }).join();
}

TEST_F(BackendCuda, AFailingLaunchIsThrownAtItsOperation) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  Error error =
      error_of([&] { compute.run("softmax", [] { fake_cuda::refuse_launch(cudaErrorNoKernelImageForDevice); }); });
  EXPECT_EQ(error.kind(), ErrorKind::missing);
  expect_says(error, {"'softmax' on stream cuda/compute", "no kernel image", "GPU code for 90",
                      "-DCMAKE_CUDA_ARCHITECTURES=native"});
  EXPECT_NO_THROW(compute.run("next", [] {}));
}

TEST_F(BackendCuda, AFaultShowsLaterAndSaysHowToFindItsOperation) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  fake_cuda::launch_fault(handle(compute), cudaErrorIllegalAddress);
  expect_says(error_of([&] { compute.synchronize(); }), {"an illegal memory access", "SHARDGRAD_CHECK=1"});
  EXPECT_THROW(compute.run("next", [] {}), DeviceFault);
}

TEST_F(BackendCuda, AFaultIsNotMistakenForAShortageOfMemory) {
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  fake_cuda::launch_fault(handle(compute), cudaErrorIllegalAddress);
  EXPECT_THROW(compute.synchronize(), DeviceFault);
  expect_says(error_of([] { empty({3}); }), {"asking for", "an illegal memory access"});
}

TEST_F(BackendCuda, WithChecksAFaultIsThrownAtItsOperation) {
  setenv("SHARDGRAD_CHECK", "1", 1);
  Context context({.device = kCuda});
  Stream& compute = context.backend(kCuda).compute();
  Error error = error_of(
      [&] { compute.run("layer_norm", [&] { fake_cuda::launch_fault(handle(compute), cudaErrorIllegalAddress); }); });
  expect_says(error, {"'layer_norm' on stream cuda/compute: an illegal memory access"});
  EXPECT_EQ(std::string(error.what()).find("SHARDGRAD_CHECK"), std::string::npos);
}

TEST_F(BackendCuda, AnUnknownValueOfTheCheckIsRefusedWithTheDevice) {
  setenv("SHARDGRAD_CHECK", "true", 1);
  Context context({.device = kCuda});
  expect_says(error_of([&] { context.backend(kCuda); }), {"SHARDGRAD_CHECK is 'true'; choose 0, 1, or unset it"});
}

// Of a block of three bytes the fourth belongs to nobody: a tool that watches the driver sees the overrun.
TEST_F(BackendCuda, WithChecksBlocksEndWhereTheyWereAskedToEnd) {
  setenv("SHARDGRAD_CHECK", "1", 1);
  {
    Context context({.device = kCuda});
    Backend& gpu = context.backend(kCuda);
    char host[8] = {};
    for (size_t bytes : {size_t(3), size_t(5000), (size_t(3) << 20) + 1}) {
      MemoryBlock block = gpu.memory()->allocate(bytes, gpu.compute());
      auto* end = static_cast<std::byte*>(block.data) + bytes;
      EXPECT_NO_THROW(gpu.copy(gpu.compute(), end - 3, host, 3));
      EXPECT_THROW(gpu.copy(gpu.compute(), end - 3, host, 4), DeviceFault);
      gpu.memory()->free(block, gpu.compute());
    }
    expect_says(error_of([] { empty({int64_t(1) << 40}, DType::u8); }), {"1099511627776 bytes on cuda", "bytes free"});
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// Storages are freed while the exception passes, and the context ends after it.
TEST_F(BackendCuda, AfterAFaultEverythingEndsWithoutAnotherError) {
  {
    Context context({.device = kCuda});
    Tensor x = from_vector<float>({1, 2, 3}, {3});
    Stream& compute = context.backend(kCuda).compute();
    fake_cuda::launch_fault(handle(compute), cudaErrorIllegalAddress);
    EXPECT_THROW(x.to_vector<float>(), Error);
    x = Tensor();
    Event event = compute.record();
    EXPECT_TRUE(event.done());
    EXPECT_THROW(event.host_wait(), DeviceFault);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST_F(BackendCuda, EveryFailingCallIsAnException) {
  struct Case {
    const char* function;
    std::function<void(Context&)> use;
  };
  const Case cases[] = {
      {"cudaStreamCreateWithPriority", [](Context& c) { c.backend(kCuda).make_stream("s"); }},
      {"cudaEventCreateWithFlags", [](Context& c) { c.backend(kCuda).compute().synchronize(); }},
      {"cudaEventRecord", [](Context& c) { c.backend(kCuda).compute().synchronize(); }},
      {"cudaEventElapsedTime",
       [](Context& c) {
         auto timer = c.backend(kCuda).compute().make_timer();
         timer->start();
         timer->stop();
         timer->seconds();
       }},
      {"cudaEventQuery", [](Context& c) { c.backend(kCuda).compute().synchronize(); }},
      {"cudaStreamWaitEvent",
       [](Context& c) {
         auto other = c.backend(kCuda).make_stream("other");
         other->wait(c.backend(kCuda).compute().record());
       }},
      {"cudaLaunchHostFunc", [](Context& c) { c.backend(kCuda).compute().notify([] {}); }},
      {"cudaHostAlloc", [](Context& c) { c.backend(kCuda).host_memory()->allocate(8, c.backend(kCpu).compute()); }},
      {"cudaMemcpyAsync", [](Context&) { from_vector<float>({1}, {1}); }},
      {"cudaMemGetInfo", [](Context& c) { c.backend(kCuda).info(); }},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.function);
    fake_cuda::reset();
    Context context({.device = kCuda});
    context.backend(kCuda);
    fake_cuda::fail_call(each.function, 1, cudaErrorInvalidValue);
    EXPECT_THROW(each.use(context), Error);
    EXPECT_NO_THROW(empty({3}));
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

}  // namespace
}  // namespace shardgrad
