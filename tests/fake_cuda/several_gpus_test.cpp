// Several GPUs of one process, pretended: each has memory, streams and products of its own, copies between two are in
// order with the work of both, and DataParallel's replicas learn what one device does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/kernels/cuda/library.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/sgd.h>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/numbers.h"

namespace shardgrad::several_gpus {
namespace {

using namespace std::chrono_literals;
constexpr Device kSecond{DeviceKind::cuda, 1}, kThird{DeviceKind::cuda, 2};

class SeveralGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    fake_cuda::machine().gpus = 2;
  }
  void TearDown() override { fake_cuda::reset(); }
};

cudaStream_t handle(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

TEST_F(SeveralGpus, EachHasMemoryAndStreamsOfItsOwn) {
  {
    Context context({.device = kCuda});
    Tensor first = from_vector<float>({1, 2}, {2}), second = first.to(kSecond);
    EXPECT_EQ(concat(second.device()), "cuda:1");
    EXPECT_EQ(fake_cuda::gpu_of(first.in().data), 0);
    EXPECT_EQ(fake_cuda::gpu_of(second.in().data), 1);
    EXPECT_EQ(fake_cuda::gpu_of(handle(context.backend(kSecond).compute())), 1);
    EXPECT_EQ((second + second).to_vector<float>(), (std::vector<float>{2, 4}));
    EXPECT_EQ((first * 3).to_vector<float>(), (std::vector<float>{3, 6})) << "and back again";
    EXPECT_THROW(first + second, Error);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

TEST_F(SeveralGpus, AThreadChoosesOneWhereItHasAnotherAndNotBeforeEachLaunch) {
  Context context({.device = kCuda});
  Tensor first = from_vector<float>({1}, {1}), second = first.to(kSecond), warm = second + second, sum = first + first;
  Tensor there, again;
  auto choices = [](const std::function<void()>& work) {
    int64_t before = fake_cuda::calls("cudaSetDevice");
    work();
    return fake_cuda::calls("cudaSetDevice") - before;
  };
  EXPECT_EQ(choices([&] {
              for (int i = 0; i < 10; ++i) sum = first + sum;
            }),
            0);
  EXPECT_EQ(sum.item(), 12);
  EXPECT_EQ(choices([&] { there = second + second; }), 1);
  cudaSetDevice(0);  // other code's
  EXPECT_EQ(choices([&] { again = second + there; }), 1);
  EXPECT_EQ(fake_cuda::current_device(), 1);
  EXPECT_EQ(again.item(), 3) << "on the wrong GPU the launch is refused";
}

TEST_F(SeveralGpus, OneThatIsNotThereIsRefusedByItsNumber) {
  Context context;
  try {
    context.backend(kThird);
    ADD_FAILURE() << "there are two";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::missing);
    EXPECT_STREQ(error.what(), "device cuda:2: this process sees 2 GPUs");
  }
}

TEST_F(SeveralGpus, RanksOfAMachineBeginWithTheirOwn) {
  Context context({.rank = 1, .world_size = 2});
  EXPECT_EQ(context.backend(kCuda).info().number, 1);
  EXPECT_EQ(context.backend(kSecond).info().number, 0);
}

TEST_F(SeveralGpus, ACopyComesBehindTheWorkOfBothAndTheHostGoesOn) {
  Context context({.device = kCuda});
  for (auto [from, to] : {std::pair(kCuda, kSecond), {kSecond, kCuda}}) {
    Tensor x = from_vector<float>({1}, {1}, {DType::f32, from});
    auto* value = static_cast<float*>(x.out().data);
    std::atomic<bool> go{false}, stopped{false};
    auto write = [&](Device device, float written, bool waits) {
      Stream& stream = context.backend(device).compute();
      stream.run("write", [&] {
        fake_cuda::launch(handle(stream), [=, &go, &stopped] {
          for (int i = 0; waits && !go && i < 5000; ++i) std::this_thread::sleep_for(1ms);
          stopped = stopped || (waits && !go);
          *value = written;
        });
      });
    };
    write(from, 7, true);
    Tensor y = x.to(to);
    write(from, 8, false);
    Tensor doubled = y * 2;
    go = true;
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>{7});
    EXPECT_EQ(doubled.to_vector<float>(), std::vector<float>{14});
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>{8});
    EXPECT_FALSE(stopped) << "the host has waited for the copy";
  }
}

struct Net : nn::Module {
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 3, 8), down = child<nn::Linear>("down", 8, 2);
  Tensor forward(const Tensor& x) { return down(tanh(up(x))); }
};

std::vector<std::vector<double>> gradients(const std::vector<Device>& devices) {
  Context context({.seed = 4, .threads = 1, .device = devices[0]});
  auto model = nn::make<Net>();
  model->to(DType::f64);
  nn::DataParallel parallel(model, devices);
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<std::vector<double>> found;
  for (int step = 0; step < 3; ++step) {
    Tensor x = test::normal({7, 3}, concat("x", step), {DType::f64, kCpu}).to(devices[0]),
           y = test::normal({7, 2}, concat("y", step), {DType::f64, kCpu}).to(devices[0]);
    mse_loss(parallel(x), y).backward();
    for (const NamedParameter& parameter : model->named_parameters())
      found.push_back(parameter.tensor.grad().to_vector<double>());
    optimizer.step();
    optimizer.zero_grad();
  }
  return found;
}

TEST_F(SeveralGpus, I49_ReplicasOnEachLearnTheBitsOfReplicasOnTheCpu) {
  auto expected = gradients({kCpu, kCpu});
  EXPECT_EQ(gradients({kCuda, kSecond}), expected);
  EXPECT_EQ(gradients({kSecond, kCuda}), expected);
  EXPECT_EQ(fake_cuda::alive(), 0);
}

}  // namespace
}  // namespace shardgrad::several_gpus
