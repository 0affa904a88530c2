// Memory of a GPU that goes from one library to another: whose it is, when it may be given back, and what its GPU is
// called.

#include <gtest/gtest.h>

#include <shardgrad/autograd/dlpack.h>
#include <shardgrad/core/context.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "tests/fake_cuda/fake_cuda.h"

namespace shardgrad {
namespace {

using namespace std::chrono_literals;

std::string refusal(dlpack::Versioned& lent) {
  try {
    dlpack::borrow(&lent);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Another library's three numbers on a GPU, which tell when they are given back.
struct Theirs {
  explicit Theirs(int gpu) {
    cudaSetDevice(gpu);
    cudaMalloc(&memory, sizeof(float) * 3);
    lent.owner = this;
    lent.deleter = [](dlpack::Versioned* self) { static_cast<Theirs*>(self->owner)->given_back = true; };
    lent.array = {memory, {dlpack::DeviceType::cuda, gpu}, 1, {dlpack::Code::floating, 32, 1}, &extent, nullptr, 0};
  }
  ~Theirs() { cudaFree(memory); }
  void* memory = nullptr;
  int64_t extent = 3;
  bool given_back = false;
  dlpack::Versioned lent{};
};

class FakeCudaDlpack : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda::reset(); }
};

TEST_F(FakeCudaDlpack, BorrowedMemoryIsReadWhereItIsAndGivenBackWhenTheGpuIsDoneWithIt) {
  Context context({.device = kCuda});
  Theirs theirs(0);
  bool done = false;
  {
    Tensor x = dlpack::borrow(&theirs.lent);
    EXPECT_EQ(x.device(), kCuda);
    EXPECT_EQ(x.in().data, theirs.memory);
    copy_into(x, from_vector<float>({1, 2, 3}, {3}));
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(dlpack::copy_of(theirs.lent.array).to_vector<float>(), (std::vector<float>{1, 2, 3}));
    Stream& compute = context.backend(kCuda).compute();
    compute.run("slow", [&] {
      fake_cuda::launch(static_cast<cudaStream_t>(compute.native()),
                        [&] { std::this_thread::sleep_for(20ms), done = true; });
    });
    EXPECT_FALSE(theirs.given_back);
  }
  EXPECT_TRUE(theirs.given_back && done) << "not before what is queued has run";
}

// Work of another library, on a stream of its own, or of a context that is no more.
struct TheirWork {
  TheirWork() : own(true) { cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0); }
  explicit TheirWork(cudaStream_t of_others) : stream(of_others) {}
  ~TheirWork() {
    if (own) cudaStreamDestroy(stream);
  }
  void begin() {
    fake_cuda::launch(stream, [this] { std::this_thread::sleep_for(50ms), done = true; });
  }
  cudaStream_t stream = nullptr;
  std::atomic<bool> done = false;
  bool own = false;
};

// PyTorch gives it back when the host is through with it, not its stream.
TEST_F(FakeCudaDlpack, LentMemoryIsUsedAgainOnceAllIsRunThatMayReadIt) {
  Context context({.device = kCuda});
  TheirWork work;
  dlpack::Versioned* lent = dlpack::lend(from_vector<float>({1, 2}, {2}).to(kCuda));
  for (bool here : {true, false}) {
    dlpack::Versioned* one = here ? dlpack::lend(from_vector<float>({1, 2}, {2}).to(kCuda)) : lent;
    work.done = false;
    work.begin();
    if (here)
      one->deleter(one);
    else
      std::thread([&] { one->deleter(one); }).join();  // one without a context
    EXPECT_TRUE(work.done) << here;
  }
}

TEST_F(FakeCudaDlpack, BorrowedMemoryIsGivenBackAfterAllThatReadsItAlsoWhereNoContextIs) {
  Theirs theirs(0);
  TheirWork work;
  Tensor x;
  {
    Context context({.device = kCuda});
    x = dlpack::borrow(&theirs.lent);
  }
  work.begin();
  x = Tensor();
  EXPECT_TRUE(theirs.given_back && work.done);
}

TEST_F(FakeCudaDlpack, BorrowedMemoryIsGivenBackAfterAllThatReadsItAlsoWhereTheJobHasFailed) {
  Context context({.device = kCuda});
  Theirs theirs(0);
  Tensor x = dlpack::borrow(&theirs.lent);
  Stream& compute = context.backend(kCuda).compute();
  TheirWork work{static_cast<cudaStream_t>(compute.native())};
  compute.run("reads it", [&] { work.begin(); });
  context.abort(std::make_exception_ptr(Error(ErrorKind::rank_failed, "another rank failed")));
  x = Tensor();
  EXPECT_TRUE(theirs.given_back && work.done);
}

TEST_F(FakeCudaDlpack, WhatAStreamsOwnWorkDropsIsNotWaitedForThere) {
  Context context({.device = kCuda});
  Theirs theirs(0);
  auto stream = make_thread_stream(context, "own");
  Tensor x = dlpack::borrow(&theirs.lent);
  auto last = std::make_shared<Tensor>(std::move(x));
  stream->run("drop", [last = std::move(last)]() mutable { last.reset(); });
  stream->synchronize();
  EXPECT_TRUE(theirs.given_back);
}

TEST_F(FakeCudaDlpack, AGpuHasTheNumberThatOtherLibrariesKnowItBy) {
  fake_cuda::machine().gpus = 3;
  Context context({.rank = 1, .world_size = 3, .device = kCuda});
  Tensor x = from_vector<float>({1, 2}, {2});
  EXPECT_EQ(dlpack::device_of(x).id, 1);
  dlpack::Versioned* lent = dlpack::lend(x);
  EXPECT_EQ(lent->array.device.id, 1);
  EXPECT_EQ(lent->array.device.type, dlpack::DeviceType::cuda);
  lent->deleter(lent);
  for (int gpu : {0, 1, 2}) {
    Theirs theirs(gpu);
    Device device = dlpack::borrow(&theirs.lent).device();
    EXPECT_EQ(device, (Device{DeviceKind::cuda, uint8_t((gpu + 2) % 3)})) << "of rank 1";
    EXPECT_TRUE(theirs.given_back);
  }
}

TEST_F(FakeCudaDlpack, MemoryOfNoGpuThatIsHereIsRefusedAndStaysTheOthers) {
  Context context({.device = kCuda});
  Theirs theirs(0);
  theirs.lent.array.device.id = 7;
  EXPECT_NE(refusal(theirs.lent).find("memory of GPU 7 cannot be had where 1 GPU is"), std::string::npos);
  theirs.lent.array.device = {dlpack::DeviceType(10), 0};
  EXPECT_NE(refusal(theirs.lent).find("device type 10"), std::string::npos);
  EXPECT_FALSE(theirs.given_back);
}

}  // namespace
}  // namespace shardgrad
