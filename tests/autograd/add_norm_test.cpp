// A sum and its norm in one operation: the bits are those of the two operations, whoever uses what of it.

#include <functional>

#include <shardgrad/autograd/recompute.h>
#include <shardgrad/core/context.h>

#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

using Norm = std::function<AddNormResult(const Tensor& x, const Tensor& residual, const Tensor& weight)>;

AddNormResult layer_norm_of_sum(const Tensor& x, const Tensor& residual, const Tensor& weight) {
  return add_layer_norm(x, residual, weight, Tensor());
}
AddNormResult rms_norm_of_sum(const Tensor& x, const Tensor& residual, const Tensor& weight) {
  return add_rms_norm(x, residual, weight);
}
AddNormResult sum_then_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight) {
  Tensor sum = x + residual;
  return {sum, layer_norm(sum, weight, Tensor())};
}
AddNormResult sum_then_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight) {
  Tensor sum = x + residual;
  return {sum, rms_norm(sum, weight)};
}
const std::pair<Norm, Norm> kOneAndTwo[] = {{layer_norm_of_sum, sum_then_layer_norm},
                                            {rms_norm_of_sum, sum_then_rms_norm}};

// Of one Context, in which a name's first numbers are drawn once.
struct Operands {
  Tensor x, scale, weight;
  explicit Operands(DType dtype = DType::f32, Device device = kCpu)
      : x(randn({3, 5, 37}, "x", {dtype, device})),
        scale(randn({37}, "scale", {dtype, device})),
        weight(randn({37}, "weight", {dtype, device})) {
    for (Tensor* each : {&x, &scale, &weight}) each->set_requires_grad();
  }
};

// As the blocks of a transformer: what is normalised goes back into the sum.
Tensor stream(const Norm& norm, const Operands& in) {
  Tensor h = in.x;
  for (int block = 0; block < 3; ++block) {
    auto [sum, y] = norm(h, mul(h, in.scale), in.weight);
    h = sum + tanh(y);
  }
  return h;
}

// Results and gradients of all operands.
std::vector<std::vector<uint8_t>> outcome(const Norm& norm, DType dtype, Device device = kCpu) {
  Context context;
  Operands in(dtype, device);
  Tensor y = stream(norm, in);
  y.backward(upstream_like(y, 1));
  return {bits(y), bits(in.x.grad()), bits(in.scale.grad()), bits(in.weight.grad())};
}

TEST(AddNorm, HasTheBitsOfTheTwoOperations) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const auto& [one, two] : kOneAndTwo) EXPECT_EQ(outcome(one, dtype), outcome(two, dtype)) << dtype;
}

TEST(AddNorm, HasTheBitsOfTheTwoOperationsOnEveryDevice) {
  for (Device device : kernel_devices())
    for (DType dtype : {DType::f32, DType::bf16})
      for (const auto& [one, two] : kOneAndTwo)
        EXPECT_EQ(outcome(one, dtype, device), outcome(two, dtype, device)) << dtype << " on " << device;
}

TEST(AddNorm, HasTheBitsOfTheTwoOperationsUnderAutocast) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (const auto& [one, two] : kOneAndTwo) {
      auto of = [&, dtype = dtype](const Norm& norm) {
        Context context;
        Autocast scope(DType::bf16);
        Tensor x = randn({3, 37}, "x").to(dtype), w = randn({37, 37}, "w").set_requires_grad(), scale = ones({37});
        auto [sum, y] = norm(x, linear(x, w, Tensor()), scale);
        EXPECT_EQ(sum.dtype(), dtype);
        EXPECT_EQ(y.dtype(), DType::f32);
        add(sum, y).backward(upstream_like(y, 1));
        return std::vector{bits(sum), bits(y), bits(w.grad())};
      };
      EXPECT_EQ(of(one), of(two)) << dtype;
    }
}

TEST(AddNorm, IsRebuiltInARecomputedRegion) {
  for (const auto& [one, two] : kOneAndTwo) {
    auto body = [norm = one](const Tensor& x, const Tensor& residual, const Tensor& weight) {
      auto [sum, y] = norm(x, residual, weight);
      return AddNormResult{exp(sum * 0.125), tanh(y)};
    };
    auto region = [&](const Tensor& x, const Tensor& residual, const Tensor& weight) {
      return checkpoint(body, x, residual, weight);
    };
    EXPECT_EQ(outcome(region, DType::f32), outcome(body, DType::f32));
  }
}

// The norm's part is added in the memory of the sum's gradient, but where that is somebody else's, too. Hooks of the
// sum see the gradient that comes to it without the norm.
TEST(AddNorm, LeavesAGradientOfTheSumThatOthersHold) {
  for (const auto& [one, two] : kOneAndTwo) {
    Context context;
    Operands in;
    auto [sum, y] = one(in.x, in.x * 2.0, in.weight);
    sum.retain_grad();
    Tensor given = upstream_like(sum, 1), seen;
    sum.register_hook([&](const Tensor& grad) { return seen = grad, Tensor(); });
    const Tensor roots[] = {sum, y}, grads[] = {given, upstream_like(y, 2)};
    backward(roots, grads);
    for (const Tensor& each : {given, seen, sum.grad()}) EXPECT_EQ(bits(each), bits(upstream_like(sum, 1)));
  }
}

// An addition hands one gradient to both results.
TEST(AddNorm, BothResultsMayHaveTheSameGradient) {
  for (const auto& [one, two] : kOneAndTwo) {
    auto of = [](const Norm& norm) {
      Context context;
      Operands in;
      auto [sum, y] = norm(in.x, in.x, in.weight);
      Tensor both = sum + y;
      both.backward(upstream_like(both, 1));
      return std::vector{bits(in.x.grad()), bits(in.weight.grad())};
    };
    EXPECT_EQ(of(one), of(two));
  }
}

TEST(AddNorm, OneResultAloneIsEnough) {
  for (const auto& [one, two] : kOneAndTwo) {
    Context context;
    Operands in;
    Tensor residual = ones({3, 5, 37}).set_requires_grad();
    sum(one(in.x, residual, in.weight).sum).backward();
    for (const Tensor& each : {in.x, residual}) EXPECT_EQ(values(each.grad()), values(ones({3, 5, 37})));
    EXPECT_EQ(values(in.weight.grad()), values(zeros({37})));
    auto of = [](const Norm& norm) {
      Context another;
      Operands fresh;
      Tensor y = norm(fresh.x, ones({3, 5, 37}), fresh.weight).y;
      y.backward(upstream_like(y, 1));
      return std::vector{bits(fresh.x.grad()), bits(fresh.weight.grad())};
    };
    EXPECT_EQ(of(one), of(two));
  }
}

TEST(AddNorm, ASumOfConstantsNeedsNoGradient) {
  Context context;
  Operands in;
  for (const auto& [one, two] : kOneAndTwo) {
    auto [sum, y] = one(in.x.detach(), in.x.detach(), in.weight);
    EXPECT_FALSE(sum.requires_grad());
    EXPECT_TRUE(y.requires_grad());
  }
}

TEST(AddNorm, RefusesSummandsOfTwoShapes) {
  Context context;
  Tensor x = zeros({2, 3}), row = zeros({3});
  EXPECT_REFUSED(add_layer_norm(x, row, Tensor(), Tensor()), "add_layer_norm", "[2, 3]", "residual [3]", "one shape");
  EXPECT_REFUSED(add_rms_norm(x, row, Tensor()), "add_rms_norm", "[2, 3]", "residual [3]", "one shape");
  EXPECT_REFUSED(add_rms_norm(zeros({}), zeros({}), Tensor()), "add_rms_norm", "scalar");
  EXPECT_REFUSED(add_layer_norm(x, x, zeros({2}), Tensor()), "add_layer_norm", "weight [2]", "[2, 3]");
}

}  // namespace
}  // namespace shardgrad::test
