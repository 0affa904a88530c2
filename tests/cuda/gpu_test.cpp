// What only the device itself can show. Without simulator and GPU there is nothing to run.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

struct Mlp : nn::Module {
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 64, 512, true, Activation::relu);
  nn::Child<nn::Linear> down = child<nn::Linear>("down", 512, 10);
  Tensor forward(const Tensor& x) { return down(up(x)); }
};

class Gpu : public ::testing::TestWithParam<Device> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Gpu);

TEST_P(Gpu, TrainingAsksTheDriverForNothingAfterTheSecondStep) {
  Context context({.device = GetParam()});
  auto model = nn::make<Mlp>();
  model->materialize();
  optim::AdamW optimizer(model->named_parameters(), {.lr = 1e-3});
  Tensor x = rand({32, 64}, "x"), target = rand({32, 10}, "target");
  int64_t asked = 0;
  for (int step = 0; step < 10; ++step) {
    mse_loss(model(x), target).backward();
    optimizer.step();
    optimizer.zero_grad();
    int64_t now = context.backend(GetParam()).info().memory_requests;
    EXPECT_TRUE(step < 2 || now == asked) << now - asked << " requests in step " << step;
    asked = now;
  }
}

TEST_P(Gpu, CopiesRunInTheOrderOfTheirStreamsAndOfTheEventsBetweenThem) {
  Context context({.device = GetParam()});
  Backend& backend = context.backend(GetParam());
  auto other = backend.make_stream("other");
  constexpr int64_t n = int64_t(1) << 20;
  Tensor a = full({n}, 1), b = full({n}, 2), c = full({n}, 3);
  for (int round = 0; round < 20; ++round) {
    copy_into(b, a);
    other->wait(backend.compute().record());
    backend.copy(*other, c.out().data, b.in().data, b.bytes());
    backend.compute().wait(other->record());
    copy_into(b, full({n}, 5 + round));
    copy_into(a, b);
    EXPECT_EQ(c.rows(n - 1, n).item(), round == 0 ? 1 : 4 + round);
  }
}

// Wide enough for cuBLASLt's masks: what its product leaves in forward, its product applies in backward.
std::vector<std::vector<double>> gradients_of_a_chain(Device device, DType dtype) {
  auto numbers = [&](Shape shape, uint64_t stream) {
    return upstream_like(empty(shape, {dtype, device}), stream).set_requires_grad();
  };
  Tensor h = numbers({24, 40}, 0);
  std::vector<Tensor> leaves{h};
  for (int64_t in = 40; int64_t out : {136, 128, 8}) {
    leaves.push_back(numbers({out, in}, uint64_t(out)));
    leaves.push_back(numbers({out}, uint64_t(out) + 1));
    Tensor scaled = affine(leaves[leaves.size() - 2], 0.125, 0);
    h = linear(h, scaled, leaves.back(), out == 8 ? Activation::none : Activation::relu);
    in = out;
  }
  h.backward(upstream_like(h, 9));
  std::vector<std::vector<double>> all;
  for (const Tensor& leaf : leaves) all.push_back(values(leaf.grad()));
  return all;
}

TEST_P(Gpu, AChainOfLayersWithReluHasTheGradientsOfTheCpu) {
  Context context;
  for (auto [dtype, tolerance] : {std::pair(DType::f32, 1e-5), {DType::bf16, 1e-2}, {DType::f16, 5e-3}}) {
    auto actual = gradients_of_a_chain(GetParam(), dtype), expected = gradients_of_a_chain(kCpu, dtype);
    for (size_t i = 0; i < expected.size(); ++i)
      expect_close(actual[i], expected[i], tolerance, concat("gradient ", i, " in ", dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Gpu, ::testing::ValuesIn(kernel_devices()), device_name);

}  // namespace
}  // namespace shardgrad::test
