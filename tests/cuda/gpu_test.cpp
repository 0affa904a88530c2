// What only the device itself can show. Without simulator and GPU there is nothing to run.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
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

INSTANTIATE_TEST_SUITE_P(Devices, Gpu, ::testing::ValuesIn(kernel_devices()), device_name);

}  // namespace
}  // namespace shardgrad::test
