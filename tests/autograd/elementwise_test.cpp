// Operations that a user makes of two functions.

#include <cmath>

#include <shardgrad/autograd/elementwise.h>
#include <shardgrad/certify/certify.h>
#include <shardgrad/certify/registry_cases.h>

#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

const auto softsign = elementwise(
    "softsign", [](auto x) { return x / (1 + std::abs(x)); },
    [](auto x) {
      auto d = 1 + std::abs(x);
      return 1 / (d * d);
    });
const auto wrong_slope = elementwise(
    "wrong_slope", [](auto x) { return x * x; }, [](auto x) { return x; });

bool offered = false;
const OfferCases cases([](std::vector<OpCase>& all) {
  if (!offered) return;
  add_unary_cases(all, softsign.name(), softsign);
  add_unary_cases(all, wrong_slope.name(), wrong_slope);
});

TEST(Elementwise, IsTwoFunctions) {
  Context context;
  Tensor x = from_vector<double>({-3, 0, 1}, {3}, {DType::f64, kCpu}).set_requires_grad();
  Tensor y = softsign(x);
  EXPECT_EQ(values(y), (std::vector<double>{-0.75, 0, 0.5}));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{1 / 16.0, 1, 0.25}));
}

TEST(Elementwise, HalvesComputeInFloatAndRoundOnce) {
  Context context;
  Tensor x = from_vector<float>({0.3f, -1.7f}, {2}).to(DType::bf16);
  EXPECT_EQ(bits(softsign(x)), bits(softsign(x.to(DType::f32)).to(DType::bf16)));
}

TEST(Elementwise, FunctionsMayHaveStateAndAnyNumberOfOperationsTheSameType) {
  Context context;
  auto times = [](double by) {
    return elementwise(
        concat("times_", by), [by](auto x) { return x * decltype(x)(by); }, [by](auto) { return by; });
  };
  auto twice = times(2), thrice = times(3);
  Tensor x = from_vector<float>({5}, {1}).set_requires_grad();
  Tensor y = twice(thrice(x));
  EXPECT_EQ(y.item(), 30);
  y.backward();
  EXPECT_EQ(x.grad().item(), 6);
}

TEST(Elementwise, HoldsOnTheHostsDevicesAndADerivativeThatIsWrongDoesNot) {
  Context context;
  offered = true;
  for (Device device : {kCpu, kAcc}) {
    Certificate certificate = certify("softsign", device);
    EXPECT_TRUE(certificate.holds()) << device;
  }
  Certificate wrong = certify("wrong_slope", kCpu);
  offered = false;
  EXPECT_FALSE(wrong.properties[0].failure.empty()) << wrong.properties[0].name;
  EXPECT_EQ(wrong.properties[0].name, std::string("gradient"));
}

TEST(Elementwise, SaysWhatItCannotDoAndTheRemedy) {
  Context context;
  EXPECT_REFUSED(softsign(from_vector<int64_t>({1}, {1})), "softsign: needs a floating dtype");
  Tensor shape = softsign(empty({2, 3}, {DType::f32, kMeta}));
  EXPECT_EQ(shape.shape(), Shape({2, 3}));
}

TEST(Elementwise, NamesOnDevicesOfKernelsTheLineThatTheyNeed) {
  Context context;
  for (Device device : kernel_devices())
    EXPECT_REFUSED(softsign(empty({2}, {DType::f32, device})), "softsign", "add_elementwise", ".cu file");
}

}  // namespace
}  // namespace shardgrad::test
