#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::test {
namespace {

// 1e-39 is a subnormal of f32.
TEST(Subnormals, CountAsZeroOnEveryThreadThatComputes) {
  constexpr size_t n = 1 << 20;
  for (bool checked : {false, true}) {
    Context context({.threads = 4, .check_streams = checked});
    for (Device device : {kCpu, kAcc}) {
      Tensor x = from_vector(std::vector<float>(n, 1e-39f), {int64_t(n)}).to(device), y = empty_like(x);
      launch(kernels::add, x, out(y), x, x);
      EXPECT_EQ(std::ranges::count(y.to_vector<float>(), 0.0f), int64_t(n)) << device;
      // A product that a library computes, where there is one.
      Tensor a = x.view({1024, 1024}), c = empty_like(a), ones = full({1024, 1024}, 1, {DType::f32, device});
      launch(kernels::matmul, a, out(c), unwanted(), a, ones, Tensor(), kernels::MatmulArgs{});
      EXPECT_EQ(std::ranges::count(c.to_vector<float>(), 0.0f), int64_t(n)) << device;
    }
  }
}

TEST(Subnormals, AreAsTheyWereWhereAThreadHasNoContext) {
  volatile float small = 1e-39f, one = 1;
  {
    Context context, inner;
    EXPECT_EQ(small * one, 0);
  }
  EXPECT_GT(small * one, 0) << "after the last context";
}

}  // namespace
}  // namespace shardgrad::test
