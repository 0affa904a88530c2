// What is timed, against what, and when nothing is. How fast anything is, no test asks.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <thread>

#include <shardgrad/certify/certify_speed.h>
#include <shardgrad/certify/cold_timing.h>
#include <shardgrad/certify/registry_cases.h>
#include <shardgrad/kernels/ops.h>

#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

using namespace std::chrono_literals;
using Kernel = Slot<OutView, View>::Kernel;

// tanh's kernel on the CPU, replaced until the end of the scope.
struct Replaced {
  TableCopy built_in;
  explicit Replaced(Kernel kernel) { kernels::tanh.replace(DeviceKind::cpu, DType::f32, kernel); }
  ~Replaced() { built_in.restore(); }
};

const Kernel built_in_tanh = kernels::tanh.find(DeviceKind::cpu, DType::f32);

void sleeps(const Launch& how, OutView y, View x) {
  std::this_thread::sleep_for(20ms);
  built_in_tanh(how, y, x);
}
void wrong_by_a_percent(const Launch&, OutView y, View x) {
  for (int64_t i = 0; i < x.numel(); ++i) y.as<float>()[i] = 1.01f * std::tanh(x.as<float>()[i]);
}
void not_a_number(const Launch&, OutView y, View x) {
  for (int64_t i = 0; i < x.numel(); ++i) y.as<float>()[i] = std::numeric_limits<float>::quiet_NaN();
}

template <class Function> OpCase small_case(const char* op, Function call, std::vector<InputSpec> inputs) {
  std::vector<OpCase> cases;
  add_speed_case(cases, op, call, std::move(inputs));
  return cases[0];
}
OpCase small_tanh() {
  return small_case("tanh", [](Inputs in) { return tanh(in[0]); }, {{{64, 64}}});
}

double moved_bytes(std::span<const Tensor> inputs, std::span<const Tensor> results) {
  double bytes = 0;
  for (std::span<const Tensor> each : {inputs, results})
    for (const Tensor& tensor : each) bytes += double(tensor.bytes());
  return bytes;
}

TEST(LargeCases, EveryOperationHasOneButThoseThatMoveNothingOnADevice) {
  std::set<std::string> small, large;
  for (const OpCase& each : op_cases())
    if (!each.made_of_others) small.insert(each.op);
  for (const OpCase& each : op_cases(Purpose::speed)) large.insert(each.op);
  for (const char* without : {"reshape", "to_device"}) EXPECT_EQ(small.erase(without), 1u);
  EXPECT_EQ(large, small);
}

TEST(LargeCases, CanBeCalledAndMoveMoreThanAFewMegabytes) {
  Context context;
  for (const OpCase& each : op_cases(Purpose::speed)) {
    SCOPED_TRACE(each.name());
    for (DType dtype : {DType::f32, DType::bf16}) {
      std::vector<Tensor> inputs = make_large_inputs(each, dtype, kMeta), results = each.call(inputs);
      EXPECT_GE(moved_bytes(inputs, results), flops_of(each) > 0 ? 4e6 : 3e7);
      EXPECT_EQ(std::ranges::any_of(results, [](const Tensor& y) { return y.requires_grad(); }), each.differentiable());
    }
  }
}

TEST(LargeCases, ProductsSayHowManyOperationsTheyAre) {
  Context context;
  std::set<std::string> with_flops;
  for (const OpCase& each : op_cases(Purpose::speed))
    if (flops_of(each) > 0) with_flops.insert(each.op);
  EXPECT_EQ(with_flops, (std::set<std::string>{"attention", "attention_cached", "conv2d", "linear",
                                               "linear_cross_entropy", "matmul"}));
}

TEST(Speed, TheRateOfAProductIsThatOfAProductThatIsTimed) {
  Context context;
  Tensor a = rand({1024, 1024}, "a"), b = rand({1024, 1024}, "b");
  double best = 1e9;
  for (int call = 0; call < 6; ++call) {
    auto begin = std::chrono::steady_clock::now();
    matmul(a, b);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  double rate = product_rate(DType::f32, kCpu), expected = 2 * std::pow(1024.0, 3) / best;
  EXPECT_GT(rate, 0.2 * expected) << "on a machine that does other things too";
  EXPECT_LT(rate, 5 * expected);
}

TEST(LargeCases, InputsLieInTheirRanges) {
  Context context;
  OpCase each = small_case("", [](Inputs in) { return in[0]; },
                           {{{999}, 0.5, 2}, index_below(7, {999}), flags({999}), constant({999}, -3, -1)});
  std::vector<Tensor> inputs = make_large_inputs(each, DType::f32, kCpu);
  const std::tuple<double, double, DType, bool> expected[] = {
      {0.5, 2, DType::f32, true}, {0, 6, DType::i64, false}, {0, 1, DType::u8, false}, {-3, -1, DType::f32, false}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto [low, high, dtype, grad] = expected[i];
    std::vector<double> numbers = values(inputs[i]);
    auto [least, most] = std::ranges::minmax(numbers);
    double slack = 0.05 * (high - low);
    EXPECT_TRUE(least >= low && least <= low + slack && most <= high && most >= high - slack) << least << ' ' << most;
    EXPECT_EQ(inputs[i].dtype(), dtype);
    EXPECT_EQ(inputs[i].requires_grad(), grad);
  }
}

TEST(ColdTiming, AFlushWritesMoreThanCachesHold) {
  Context context;
  ColdTiming timing(kCpu);
  EXPECT_GE(timing.buffer().bytes(), size_t(64) << 20);
  timing.flush();
  timing.flush();
  const float* written = timing.buffer().data<float>();
  EXPECT_EQ(written[0], 2.0f);
  EXPECT_EQ(std::memcmp(written, written + 1, timing.buffer().bytes() - sizeof(float)), 0) << "it is in all places";
}

TEST(ColdTiming, PiecesTakeTurnsAndEveryCallComesRightAfterAFlush) {
  Context context;
  ColdTiming timing(kCpu);
  std::vector<std::string> order;
  std::vector<float> flushes;
  auto note = [&](const std::string& what) {
    return [&, what] {
      order.push_back(what);
      flushes.push_back(timing.buffer().data<float>()[0]);
    };
  };
  const ColdTiming::Piece pieces[] = {{note("before a"), note("a")}, {note("before b"), note("b")}};
  ColdTiming::Result result = timing.medians(pieces);
  EXPECT_EQ(result.seconds.size(), 2u);
  EXPECT_GE(result.calls, 3);
  ASSERT_EQ(order.size(), size_t(4 * (result.calls + 1))) << "one round more, to warm up";
  const std::string turns[] = {"before a", "a", "before b", "b"};
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(order[i], turns[i % 4]);
    EXPECT_EQ(flushes[i], float((i + 1) / 2)) << order[i];
  }
}

TEST(ColdTiming, TimesTheWorkAndNotWhatPreparesIt) {
  Context context;
  const ColdTiming::Piece pieces[] = {{[] {}, [] { std::this_thread::sleep_for(20ms); }},
                                      {[] { std::this_thread::sleep_for(20ms); }, [] {}}};
  std::vector<double> seconds = ColdTiming(kCpu).medians(pieces).seconds;
  EXPECT_GE(seconds[0], 0.02);
  EXPECT_LT(seconds[1], 0.01);
}

TEST(Speed, IsMeasuredForwardAndBackwardBesideACopyOfAsManyBytes) {
  Context context;
  Speed speed = measure_speed(small_tanh(), DType::bf16, kCpu);
  EXPECT_EQ(speed.bytes, 2 * 64 * 64 * 2);
  EXPECT_GT(speed.forward, 0);
  EXPECT_GT(speed.backward, 0);
  EXPECT_GT(speed.copy, 0);
  EXPECT_EQ(speed.roof(), speed.copy);
  EXPECT_EQ(speed.peak, 0);
  EXPECT_EQ(speed.built_in_forward, 0) << "nothing was replaced";
}

TEST(Speed, AnOperationWithoutGradientHasNoBackward) {
  Context context;
  OpCase equal = small_case("eq", [](Inputs in) { return eq(in[0], in[1]); }, {constant({64}), constant({64})});
  Speed speed = measure_speed(equal, DType::f32, kCpu);
  EXPECT_EQ(speed.bytes, 64 * (4 + 4 + 1));
  EXPECT_EQ(speed.backward, 0);
}

TEST(Speed, AProductIsHeldAgainstThePeakOfTheLibrarysOwn) {
  Context context;
  OpCase product = small_case("matmul", [](Inputs in) { return matmul(in[0], in[1]); }, {{{256, 256}}, {{256, 256}}});
  Speed speed = measure_speed(product, DType::f32, kCpu);
  EXPECT_EQ(speed.flops, 2.0 * 256 * 256 * 256);
  EXPECT_GT(speed.peak, 0);
  EXPECT_EQ(speed.roof(), std::max(speed.copy, speed.flops / speed.peak));
}

TEST(Speed, AReplacedKernelIsTimedBesideTheBuiltInOne) {
  Context context;
  Replaced replaced(sleeps);
  Speed speed = measure_speed(small_tanh(), DType::f32, kCpu, &replaced.built_in);
  EXPECT_GE(speed.forward, 0.02);
  EXPECT_GT(speed.built_in_forward, 0);
  EXPECT_LT(speed.built_in_forward, speed.forward / 2);
  EXPECT_GT(speed.built_in_backward, 0);
  EXPECT_EQ(kernels::tanh.find(DeviceKind::cpu, DType::f32), sleeps) << "the table is left as it was";
}

void expect_not_timed(Kernel kernel, const char* reason) {
  Context context;
  Replaced replaced(kernel);
  EXPECT_REFUSED(measure_speed(small_tanh(), DType::f32, kCpu, &replaced.built_in), reason, "in f32", "[64, 64]");
}
TEST(Speed, OnlyWhatIsRightIsTimed) {
  expect_not_timed(wrong_by_a_percent, "differs from the built-in kernels' by 0.0");
  expect_not_timed(not_a_number, "is not finite");
}

TEST(Speed, WhereTimesSayNothingItSaysWhy) {
  Context context;
  for (Device device : {kAcc, kSim, kMeta}) {
    SpeedReport report = measure_speeds("tanh", device);
    EXPECT_TRUE(report.speeds.empty());
    EXPECT_NE(report.why_not.find(concat("device ", device, " is for tests")), std::string::npos) << report.why_not;
  }
  EXPECT_NE(measure_speeds("reshape", kCpu).why_not.find("no large case"), std::string::npos);
}

TEST(Speed, AWrongResultOfALargeCaseIsReportedAsSuch) {
  Context context;
  Replaced replaced(not_a_number);
  SpeedReport report = measure_speeds("tanh", kCpu, &replaced.built_in);
  EXPECT_TRUE(report.speeds.empty());
  EXPECT_EQ(report.why_not, "");
  EXPECT_NE(report.wrong.find("not finite"), std::string::npos) << report.wrong;
}

TEST(Speed, DevicesThatAreGpusAreMeasured) {
  Context context;
  for (Device device : kernel_devices())
    for (const char* op : {"add", "layer_norm", "matmul"}) {
      if (device == kSim) continue;
      SpeedReport report = measure_speeds(op, device);
      EXPECT_EQ(report.why_not, "") << op << " on " << device;
      for (const Speed& speed : report.speeds) EXPECT_TRUE(speed.forward > 0 && speed.backward > 0 && speed.copy > 0);
    }
}

}  // namespace
}  // namespace shardgrad::test
