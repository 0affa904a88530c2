// Sharded training on the pretended GPU, with the CPU's kernels queued on its streams: memory, order and staging of
// device cuda change nothing of the numbers.

#include <gtest/gtest.h>

#include <shardgrad/kernels/ops.h>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

// The slot's kernel for the CPU, run on the GPU's stream when its turn comes.
template <auto& slot, DType dtype, class... Args> void queued(const Launch& how, Args... args) {
  Context* owner = Context::current();
  fake_cuda::launch(static_cast<cudaStream_t>(how.native_stream), [=] {
    ContextScope scope(*owner);
    slot.find(DeviceKind::cpu, dtype)(Launch{1}, args...);
  });
}
template <auto& slot, class... Args> bool add(Slot<Args...>&) {
  slot.add(DeviceKind::cuda, DType::f32, Isa::plain, queued<slot, DType::f32, Args...>);
  slot.add(DeviceKind::cuda, DType::f64, Isa::plain, queued<slot, DType::f64, Args...>);
  return true;
}
template <auto&... slots> bool add_all() { return (add<slots>(slots) && ...); }
const bool registered =
    add_all<kernels::fill, kernels::copy, kernels::cast, kernels::expand, kernels::sum_to, kernels::random_uniform,
            kernels::random_normal, kernels::add, kernels::sub, kernels::mul, kernels::affine, kernels::relu,
            kernels::gelu, kernels::tanh, kernels::relu_backward, kernels::gelu_backward, kernels::tanh_backward,
            kernels::matmul, kernels::mse, kernels::mse_backward, kernels::sgd, kernels::adam>();

class OnFakeCuda : public ::testing::TestWithParam<std::tuple<int, Strategy, std::string>> {
 protected:
  void SetUp() override { fake_cuda::reset(); }
};

TEST_P(OnFakeCuda, TrainingGivesTheBitsOfTheCpu) {
  auto [world, strategy, group] = GetParam();
  fsdp::testing::Setup setup{.world = world, .steps = 4, .group = group};
  setup.config.strategy = strategy;
  for (Optim optim : {Optim::sgd, Optim::adamw}) {
    setup.optim = optim;
    setup.device = kCpu;
    Outcome expected = train<Chain>(setup);
    setup.device = kCuda;
    EXPECT_TRUE(train<Chain>(setup) == expected);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

// What is kept in host memory is pinned, so that copies run beside compute.
TEST(OnFakeCudaOffload, HostMemoryIsPinnedAndTheBitsAreThoseOfTheCpu) {
  fake_cuda::reset();
  for (int world : {1, 2}) {
    fsdp::testing::Setup setup{.world = world, .steps = 4};
    setup.config.strategy = Strategy::zero3;
    setup.device = kCpu;
    Outcome expected = train<Chain>(setup);
    setup.device = kCuda;
    train<Chain>(setup);
    EXPECT_TRUE(world > 1 || fake_cuda::calls("cudaHostAlloc") == 0) << "one rank stages nothing";
    setup.config.move_params_to_cpu = true;
    EXPECT_TRUE(train<Chain>(setup) == expected);
    EXPECT_GT(fake_cuda::calls("cudaHostAlloc"), 0);
  }
  EXPECT_EQ(fake_cuda::alive(), 0);
}

std::string name_of_case(const ::testing::TestParamInfo<OnFakeCuda::ParamType>& info) {
  auto [world, strategy, group] = info.param;
  return concat(group, "_", name_of(strategy), "_", world);
}
INSTANTIATE_TEST_SUITE_P(Training, OnFakeCuda,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(Strategy::ddp, Strategy::zero2, Strategy::zero3),
                                            ::testing::Values("threads", "shared_memory")),
                         name_of_case);

void faulty(const Launch& how, OutView, View) {
  fake_cuda::launch_fault(static_cast<cudaStream_t>(how.native_stream), cudaErrorIllegalAddress);
}

TEST(OnFakeCudaErrors, AFaultOfAnOperationNamesItItsShapesAndTheRank) {
  fake_cuda::reset();
  setenv("SHARDGRAD_CHECK", "1", 1);
  kernels::log.add(DeviceKind::cuda, DType::f32, Isa::plain, faulty);
  {
    Context context({.rank = 2, .world_size = 3, .device = kCuda});
    Tensor x = full({2, 3}, 1);
    std::string message;
    try {
      log(x);
    } catch (const DeviceFault& fault) {
      message = fault.what();
    }
    EXPECT_NE(
        message.find("log(f32[2, 3], f32[2, 3]) on rank 2: 'log' on stream cuda/compute: an illegal memory access"),
        std::string::npos)
        << message;
  }
  unsetenv("SHARDGRAD_CHECK");
  fake_cuda::reset();
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
