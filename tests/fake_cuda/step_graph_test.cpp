// Captured steps on the pretended GPU: they are CUDA graphs, of which a step launches one.

#include <gtest/gtest.h>

#include <thread>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/step_graph.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/numbers.h"

namespace shardgrad {
namespace {

struct Net : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 5, 16), out = child<nn::Linear>("out", 16, 3);
  nn::Child<nn::Dropout> drop = child<nn::Dropout>("drop", 0.3);
  Tensor forward(const Tensor& x) { return out(drop(tanh(in(x)))); }
};

struct Training {
  nn::Child<Net> model = nn::make<Net>();
  std::unique_ptr<optim::AdamW> optimizer;
  Tensor x = zeros({6, 5}), y = zeros({6, 3});
  std::vector<float> losses;

  Training() {
    model->materialize();
    optimizer = std::make_unique<optim::AdamW>(model->named_parameters(), optim::AdamOptions{});
  }
  Tensor step() {
    Tensor loss = mse_loss(model->forward(x), y, 6);
    loss.backward();
    optimizer->step(optim::clip_scale(optim::grad_power(model->named_parameters()), 0.05));
    optimizer->zero_grad();
    return loss.detach();
  }
  template <class Step> void run(int steps, Step&& step) {
    for (int i = 0; i < steps; ++i) {
      progress() = {uint64_t(i), 0};
      optimizer->set_lr(0.1 / (i + 1));
      copy_into(x, test::normal({6, 5}, concat("x", i)));
      losses.push_back(float(step().item()));
    }
  }
  std::vector<float> weights() const { return model->in->weight.to_vector<float>(); }
};

TEST(FakeCudaStepGraph, AReplayIsOneLaunchWithTheBitsOfAPlainStep) {
  fake_cuda::reset();
  {
    Context context({.device = kCuda});
    Training plain, replayed;
    plain.run(7, [&] { return plain.step(); });
    StepGraph step([&] { return replayed.step(); });
    replayed.run(7, [&] { return step(); });
    EXPECT_EQ(replayed.losses, plain.losses);
    EXPECT_EQ(replayed.weights(), plain.weights());
    EXPECT_EQ(fake_cuda::calls("cudaStreamBeginCapture"), 1);
    EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 5) << "two steps of seven are plain";
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST(FakeCudaStepGraph, WhatIsRefusedLeavesTheGpuAsItWas) {
  fake_cuda::reset();
  {
    Context context({.device = kCuda});
    Training training;
    bool reads = false;
    StepGraph step([&] {
      Tensor loss = training.step();
      if (reads) loss.item();
      return loss;
    });
    training.run(2, [&] { return step(); });
    reads = true;
    std::vector<float> before = training.weights();
    EXPECT_THROW(step(), Error);
    EXPECT_EQ(training.weights(), before);
    reads = false;
    training.run(3, [&] { return step(); });
    EXPECT_TRUE(step.is_captured());
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST(FakeCudaStepGraph, AStreamThatWaitsForTheStepIsPartOfIt) {
  fake_cuda::reset();
  {
    Context context({.device = kCuda});
    Backend& device = context.backend(kCuda);
    std::unique_ptr<Stream> beside = device.make_stream("beside");
    Tensor x = zeros({4}), copy = zeros({4}), sums = zeros({4});
    StepGraph step([&] {
      Tensor twice = x * 2;
      beside->wait(device.compute().record());
      device.copy(*beside, copy.out().data, twice.in().data, twice.bytes());
      device.compute().wait(beside->record());
      copy_into(sums, sums + copy);
      return sums;
    });
    for (int i = 0; i < 5; ++i) {
      copy_into(x, full({4}, 1));
      step();
    }
    EXPECT_EQ(sums.to_vector<float>(), std::vector<float>(4, 10));
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST(FakeCudaStepGraph, AGraphThatTheDriverRefusesIsAFault) {
  fake_cuda::reset();
  Context context({.device = kCuda});
  Training training;
  StepGraph step([&] { return training.step(); });
  training.run(2, [&] { return step(); });
  fake_cuda::fail_call("cudaGraphInstantiate", 1, cudaErrorMemoryAllocation);
  EXPECT_THROW(step(), DeviceFault);
  training.run(2, [&] { return step(); });
  EXPECT_TRUE(step.is_captured());
}

// What it queued would become part of the step.
TEST(FakeCudaStepGraph, AnotherThreadIsKeptFromAStreamThatIsCaptured) {
  fake_cuda::reset();
  Context context({.device = kCuda});
  Tensor x = full({4}, 1), seen = zeros({4});
  std::string why;
  StepGraph step([&] {
    std::thread([&] {
      ContextScope scope(context);
      try {
        copy_into(seen, full({4}, 3));
      } catch (const Error& error) {
        why = error.what();
      }
    }).join();
    return x * 2;
  });
  for (int i = 0; i < 2; ++i) step();
  EXPECT_EQ(why, "");
  step();
  EXPECT_NE(why.find("is used by another thread while a step of it is captured (StepGraph)"), std::string::npos) << why;
  EXPECT_EQ(step().to_vector<float>(), std::vector<float>(4, 2));
}

TEST(FakeCudaStepGraph, AStateThatAStepReplacesIsRefused) {
  fake_cuda::reset();
  {
    Context context({.device = kCuda});
    Tensor h = zeros({4}), x = full({4}, 1);
    bool replaces = true;
    StepGraph step([&] {
      Tensor next = h * 0.5 + x;
      if (replaces)
        h = next;
      else
        copy_into(h, next);
      return h;
    });
    step(), step();
    EXPECT_THROW(step(), Error);
    EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 0);
    replaces = false;
    h = zeros({4});
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(h.to_vector<float>(), std::vector<float>(4, 1.75));
    EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 3);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// Its owner is told when the step is not called any more; and a wait for the GPU would end the capture.
TEST(FakeCudaStepGraph, BorrowedMemoryThatAStepDropsStays) {
  fake_cuda::reset();
  bool gone = false;
  {
    Context context({.device = kCuda});
    Tensor lent = full({4}, 3);
    Tensor x = from_blob(
        lent.out().data, {4}, DType::f32, [&gone] { gone = true; }, kCuda);
    {
      StepGraph step([&] {
        Tensor y = x * 2;
        if (Capture::current()) x = Tensor();
        return y;
      });
      for (int i = 0; i < 3; ++i) step();
      EXPECT_FALSE(gone);
      EXPECT_EQ(step().to_vector<float>(), std::vector<float>(4, 6));
    }
    EXPECT_TRUE(gone);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

}  // namespace
}  // namespace shardgrad
