// A kernel that breaks a promise loses that promise's line of the certificate, and no other but "sizes": what breaks
// everywhere breaks at odd sizes too.

#include <cmath>
#include <limits>

#include <shardgrad/autograd/node.h>
#include <shardgrad/certify/certify.h>
#include <shardgrad/certify/certify_outcome.h>
#include <shardgrad/certify/reference/element.h>
#include <shardgrad/certify/reference/table.h>
#include <shardgrad/certify/registry_cases.h>
#include <shardgrad/kernels/ops.h>

#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

using Kernel = Slot<OutView, View, View>::Kernel;

// tanh's backward on the CPU, replaced until the end of the scope.
class Replaced {
 public:
  void use(Kernel f32, Kernel f64) {
    kernels::tanh_backward.replace(DeviceKind::cpu, DType::f32, f32);
    kernels::tanh_backward.replace(DeviceKind::cpu, DType::f64, f64);
  }
  ~Replaced() { use(f32_, f64_); }

 private:
  Kernel f32_ = kernels::tanh_backward.find(DeviceKind::cpu, DType::f32);
  Kernel f64_ = kernels::tanh_backward.find(DeviceKind::cpu, DType::f64);
};

template <class T> T slope(T y) { return 1 - y * y; }

template <class T> void right(const Launch&, OutView dx, View dy, View y) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    T old = dx.beta != 0 ? dx.as<T>()[i] : 0;
    dx.as<T>()[i] = old + dy.as<T>()[i] * slope(y.as<T>()[i]);
  }
}
template <class T> void wrong_by_a_percent(const Launch& how, OutView dx, View dy, View y) {
  right<T>(how, dx, dy, y);
  for (int64_t i = 0; i < y.numel(); ++i) dx.as<T>()[i] += T(0.01) * dy.as<T>()[i] * slope(y.as<T>()[i]);
}
template <class T> void reads_what_it_overwrites(const Launch&, OutView dx, View dy, View y) {
  for (int64_t i = 0; i < y.numel(); ++i)
    dx.as<T>()[i] = T(dx.beta) * dx.as<T>()[i] + dy.as<T>()[i] * slope(y.as<T>()[i]);
}
template <class T> void never_adds(const Launch& how, OutView dx, View dy, View y) {
  dx.beta = 0;
  right<T>(how, dx, dy, y);
}
// As a loop over whole vectors that leaves the rest, where few elements take another way.
template <class T> void forgets_the_rest(const Launch& how, OutView dx, View dy, View y) {
  if (y.numel() > 1000) y.shape = dx.shape = {y.numel() / 4 * 4};
  right<T>(how, dx, dy, y);
}
template <class T> void adds_all_but_the_rest(const Launch& how, OutView dx, View dy, View y) {
  if (dx.beta != 0) return forgets_the_rest<T>(how, dx, dy, y);
  right<T>(how, dx, dy, y);
}
template <class T> void wrong_from_row_32_on(const Launch& how, OutView dx, View dy, View y) {
  right<T>(how, dx, dy, y);
  int64_t cols = y.shape.ndim() == 2 ? y.shape[1] : 1;
  for (int64_t i = 32 * cols; y.shape.ndim() == 2 && i < y.numel(); ++i) dx.as<T>()[i] *= T(1.5);
}
template <class T> void right_where_aligned(const Launch& how, OutView dx, View dy, View y) {
  right<T>(how, dx, dy, y);
  if (y.numel() > 0 && reinterpret_cast<uintptr_t>(dx.data) % 16 != 0) dx.as<T>()[0] *= T(1.5);
}
template <class T> void differs_every_time(const Launch& how, OutView dx, View dy, View y) {
  static int calls = 0;
  right<T>(how, dx, dy, y);
  if (y.numel() > 0) dx.as<T>()[0] += T(1e-13) * T(sizeof(T) == 4 ? 1e7 : 1) * T(++calls % 3);
}

// The values it is right for are written first.
template <class T> void writes_its_operand(const Launch& how, OutView dx, View dy, View y) {
  right<T>(how, dx, dy, y);
  T* saved = const_cast<T*>(y.as<T>());
  if (y.numel() > 0) saved[0] = std::nextafter(saved[0], T(2));
}
template <class T> void loses_nan(const Launch& how, OutView dx, View dy, View y) {
  right<T>(how, dx, dy, y);
  for (int64_t i = 0; i < y.numel(); ++i)
    if (std::isnan(dx.as<T>()[i]) && std::isnan(y.as<T>()[i])) dx.as<T>()[i] = 0;
}

// As a polynomial that does not quite reach 1: within the tolerance of every other number.
template <class T> void never_flat(const Launch&, OutView dx, View dy, View y) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    T old = dx.beta != 0 ? dx.as<T>()[i] : 0;
    dx.as<T>()[i] = old + dy.as<T>()[i] * std::max(slope(y.as<T>()[i]), T(sizeof(T) == 4 ? 1e-7 : 1e-14));
  }
}

std::string failed(const Certificate& certificate) {
  std::string names;
  for (const Certificate::Property& property : certificate.properties)
    if (!property.failure.empty()) names += property.name + ' ';
  return names;
}

TEST(Certify, BuiltInKernelsHoldOnEveryDevice) {
  Context context;
  std::vector<Device> devices = kernel_devices();
  devices.insert(devices.begin(), {kCpu, kAcc});
  for (Device device : devices)
    for (const char* op : {"tanh", "layer_norm", "gather", "eq"}) {
      Certificate certificate = certify(op, device);
      EXPECT_TRUE(certificate.holds()) << op << " on " << device << ": " << failed(certificate);
      EXPECT_GT(certificate.cases, 0);
    }
}

TEST(Certify, EachBrokenPromiseIsNamed) {
  Context context;
  struct Case {
    Kernel f32, f64;
    const char* fails;
  };
  const Case cases[] = {
      {right<float>, right<double>, ""},
      {wrong_by_a_percent<float>, wrong_by_a_percent<double>, "gradient oracle built-in special values sizes "},
      {reads_what_it_overwrites<float>, reads_what_it_overwrites<double>, "beta special values sizes "},
      {never_adds<float>, never_adds<double>, "beta sizes "},
      {differs_every_time<float>, right<double>, "determinism special values sizes "},
      {forgets_the_rest<float>, forgets_the_rest<double>, "sizes "},
      {adds_all_but_the_rest<float>, adds_all_but_the_rest<double>, "sizes "},
      {wrong_from_row_32_on<float>, wrong_from_row_32_on<double>, "sizes "},
      {right_where_aligned<float>, right_where_aligned<double>, "sizes "},
      {writes_its_operand<float>, writes_its_operand<double>, "inputs special values sizes "},
      {loses_nan<float>, loses_nan<double>, "special values sizes "},
      {never_flat<float>, right<double>, "special values sizes "},
      {right<float>, never_flat<double>, "special values sizes "},
  };
  for (const Case& each : cases) {
    Replaced replaced;
    Certificate certificate = certify("tanh", kCpu, [&] { replaced.use(each.f32, each.f64); });
    EXPECT_EQ(failed(certificate), each.fails);
    EXPECT_EQ(certificate.holds(), *each.fails == 0);
  }
}

// An operation of a library: y = x³, whose kernels are as a test wants them.
struct Cube {
  bool offered = false, adds = true, right = true, in_place = false;
};
Cube cube_is;
constinit Slot<OutView, View> cube_slot{"cube"};
constinit Slot<OutView, View, View> cube_backward_slot{"cube_backward"};

struct CubeNode final : Node {
  const char* name() const override { return "cube"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(cube_backward_slot, dy[0], dx[0].write(), dy[0], saved(0));
  }
};
Tensor cube(const Tensor& x) {
  Tensor y = cube_is.in_place ? clone(x.detach()) : empty_like(x);
  launch(cube_slot, x, out(y), cube_is.in_place ? y : x);
  if (auto* node = record<CubeNode>(y, x)) node->save(x);
  return y;
}

void cube_kernel(const Launch&, OutView y, View x) {
  if (!cube_is.adds) y.beta = 0;
  for (int64_t i = 0; i < x.numel(); ++i)
    reference::put(y, i, std::pow(reference::get(x, i), 3) * (cube_is.right ? 1 : 2));
}
void cube_backward_kernel(const Launch&, OutView dx, View dy, View x) {
  for (int64_t i = 0; i < x.numel(); ++i)
    reference::put(dx, i, reference::get(dy, i) * 3 * std::pow(reference::get(x, i), 2) * (cube_is.right ? 1 : 2));
}
const bool cube_is_registered = [] {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    cube_slot.add(DeviceKind::cpu, dtype, cube_kernel);
    cube_backward_slot.add(DeviceKind::cpu, dtype, cube_backward_kernel);
  }
  return true;
}();
const OfferCases cube_cases([](std::vector<OpCase>& all) {
  if (!cube_is.offered) return;
  auto call = [](Inputs in) { return cube(in[0]); };
  add_case(all, "cube", "", call, {{{3, 5}}});
  add_size_case(all, "cube", call, {{{1025}}});
});

TEST(Certify, AForwardKernelThatIgnoresBetaIsNamed) {
  Context context;
  cube_is = {.offered = true, .adds = false};
  Certificate certificate = certify("cube", kCpu);
  cube_is = {};
  EXPECT_EQ(failed(certificate), "beta sizes ");
  EXPECT_NE(certificate.properties[2].failure.find("kernel cube told to add"), std::string::npos)
      << certificate.properties[2].failure;
}

TEST(Certify, AKernelThatOverwritesItsOperandIsNotToldToAddToIt) {
  Context context;
  cube_is = {.offered = true, .in_place = true};
  Certificate certificate = certify("cube", kCpu);
  cube_is = {};
  EXPECT_TRUE(certificate.holds()) << failed(certificate) << certificate.properties[2].failure;
}

TEST(Certify, TheReferenceTakesThePlaceOfKernelsThatThereAre) {
  ASSERT_FALSE(kernels::exp.has(DeviceKind::cpu, DType::i64));
  reference::ReferenceKernels reference;
  EXPECT_FALSE(kernels::exp.has(DeviceKind::cpu, DType::i64)) << "what is refused stays refused";
}

// Forward and backward that are wrong together agree with central differences: only an oracle sees them.
TEST(Certify, TheOracleOfABuiltInOperationSharesNoCodeWithItsKernels) {
  Context context;
  auto twice = [](const Launch&, OutView y, View x) {
    for (int64_t i = 0; i < x.numel(); ++i) reference::put(y, i, 2 * std::exp(reference::get(x, i)));
  };
  TableCopy before;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    kernels::exp.replace(DeviceKind::cpu, dtype, twice);
  std::string names = failed(certify("exp", kCpu));
  before.restore();
  EXPECT_EQ(names, "oracle special values sizes ");  // and not gradient: that of exp is its result
  EXPECT_EQ(failed(certify("exp", kCpu)), "");
}

// What neg loses with this kernel.
std::string failed_with(Slot<OutView, View>::Kernel neg) {
  TableCopy before;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    kernels::neg.replace(DeviceKind::cpu, dtype, neg);
  std::string names = failed(certify("neg", kCpu));
  before.restore();
  return names;
}

TEST(Certify, AZeroOrAnInfinityOfTheWrongSignIsNamed) {
  Context context;
  auto subtracts = [](const Launch&, OutView y, View x) {
    for (int64_t i = 0; i < x.numel(); ++i) reference::put(y, i, 0 - reference::get(x, i));
  };
  auto leaves_infinities = [](const Launch&, OutView y, View x) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      double value = reference::get(x, i);
      reference::put(y, i, std::isinf(value) ? value : -value);
    }
  };
  EXPECT_EQ(failed_with(subtracts), "special values sizes ");
  EXPECT_EQ(failed_with(leaves_infinities), "special values sizes ");
  EXPECT_EQ(failed(certify("neg", kCpu)), "");
}

// neg, but for what is subnormal in the dtype, of which `make` makes something else.
template <class Make> auto neg_but(Make) {
  return [](const Launch&, OutView y, View x) {
    double smallest_normal = x.dtype == DType::f16 ? 0x1p-14 : x.dtype == DType::f64 ? 0 : 0x1p-126;
    for (int64_t i = 0; i < x.numel(); ++i) {
      double value = reference::get(x, i);
      bool subnormal = value != 0 && std::abs(value) < smallest_normal;
      reference::put(y, i, subnormal ? Make()(value, smallest_normal) : -value);
    }
  };
}

TEST(Certify, ASubnormalIsKeptOrBecomesAZeroOfItsSignAndNothingElse) {
  Context context;
  auto zero = [](double x, double) { return std::copysign(0.0, -x); };
  auto plus_zero = [](double, double) { return 0.0; };
  auto minus_zero = [](double, double) { return -0.0; };
  auto doubled = [](double x, double) { return -2 * x; };
  auto normal = [](double x, double smallest) { return std::copysign(smallest, -x); };
  auto wrong_in_f16 = [](double x, double smallest) { return smallest == 0x1p-14 ? -2 * x : -x; };
  EXPECT_EQ(failed_with(neg_but(zero)), "");
  EXPECT_EQ(failed_with(neg_but(plus_zero)), "special values ");
  EXPECT_EQ(failed_with(neg_but(minus_zero)), "special values ");
  EXPECT_EQ(failed_with(neg_but(doubled)), "special values ");
  EXPECT_EQ(failed_with(neg_but(normal)), "special values ");
  EXPECT_EQ(failed_with(neg_but(wrong_in_f16)), "special values ");
}

// What a polynomial that leaves its range gives.
TEST(Certify, WhatExpMakesBetweenItsEndsIsLookedAt) {
  Context context;
  auto with_a_gap = [](const Launch&, OutView y, View x) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      double value = reference::get(x, i);
      reference::put(y, i, value > -100 && value < -90 ? 0x1p-125 : std::exp(value));
    }
  };
  TableCopy before;
  for (DType dtype : {DType::f32, DType::bf16}) kernels::exp.replace(DeviceKind::cpu, dtype, with_a_gap);
  std::string names = failed(certify("exp", kCpu));
  before.restore();
  EXPECT_EQ(names, "special values sizes ");
}

// Right but for an infinity, here in one dtype, there in f32 beyond the first elements, where another loop runs.
TEST(Certify, SpecialValuesAreTriedInF64AndAtOddSizes) {
  Context context;
  auto wrong_in_f64 = [](const Launch&, OutView y, View x) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      double value = reference::get(x, i);
      reference::put(y, i, x.dtype == DType::f64 && value > 1e308 ? 0 : -value);
    }
  };
  auto wrong_in_a_loop = [](const Launch&, OutView y, View x) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      double value = reference::get(x, i);
      reference::put(y, i, x.dtype == DType::f32 && i >= 256 && value > 1e38 ? 0 : -value);
    }
  };
  EXPECT_EQ(failed_with(wrong_in_f64), "special values ");
  EXPECT_EQ(failed_with(wrong_in_a_loop), "sizes ");
}

TEST(Certify, WithoutAReferenceTheCertificateSaysWhoseWordItIs) {
  Context context;
  cube_is = {.offered = true, .right = false};
  Certificate certificate = certify("cube", kCpu), asynchronous = certify("cube", kAcc);
  cube_is = {};
  EXPECT_TRUE(certificate.holds()) << failed(certificate);
  EXPECT_EQ(certificate.properties[1].note, "by the word of these kernels themselves, in f64: cube, cube_backward");
  EXPECT_EQ(asynchronous.properties[1].note, certificate.properties[1].note) << "which run there, too";
  EXPECT_EQ(certify("tanh", kCpu).properties[1].note, "");
}

TEST(Certify, DtypesInWhichTheCPUHasNoKernelAreNamedAsNotTried) {
  Context context;
  TableCopy before;
  cube_is = {.offered = true};
  cube_backward_slot.replace(DeviceKind::cpu, DType::f16, nullptr);
  Certificate certificate = certify("cube", kCpu);
  before.restore();
  Certificate whole = certify("cube", kCpu);
  cube_is = {};
  auto note_of = [](const Certificate& each) {
    for (const Certificate::Property& property : each.properties)
      if (property.name == "special values") return property.note;
    return std::string("no such property");
  };
  EXPECT_EQ(note_of(certificate), "not tried in f16, in which the CPU has no kernel to compare with");
  EXPECT_EQ(note_of(whole), "");
}

TEST(Certify, AnInfinityAmongTheExpectedIsComparedAndHidesNothing) {
  Context context;
  double infinity = std::numeric_limits<double>::infinity();
  auto told = [&](std::vector<double> actual, const std::vector<double>& expected) {
    return difference("result", 0, from_vector(actual, {int64_t(actual.size())}), expected, 1e-3, 0);
  };
  EXPECT_EQ(told({infinity, -infinity, 2}, {infinity, -infinity, 2}), "");
  EXPECT_NE(told({42, 1}, {-infinity, 1}), "");
  EXPECT_NE(told({infinity, 1}, {-infinity, 1}), "");
  EXPECT_NE(told({-infinity, 42}, {-infinity, 1}), "") << "the elements beside it, too";
  EXPECT_NE(told({infinity}, {1}), "");
}

TEST(Certify, AFailureSaysWhere) {
  Context context;
  Replaced replaced;
  Certificate certificate =
      certify("tanh", kCpu, [&] { replaced.use(wrong_by_a_percent<float>, wrong_by_a_percent<double>); });
  const std::string& failure = certificate.properties[1].failure;  // the oracle
  for (const char* part : {"case 'tanh ", "in f32, gradient 0 of shape [", "element 0, is ", ", expected "})
    EXPECT_NE(failure.find(part), std::string::npos) << failure << "\nlacks: " << part;
}

TEST(Certify, AForgottenRestIsNamedWithItsPlace) {
  Context context;
  Replaced replaced;
  Certificate certificate =
      certify("tanh", kCpu, [&] { replaced.use(forgets_the_rest<float>, forgets_the_rest<double>); });
  const std::string& failure = certificate.properties.back().failure;
  for (const char* part : {"case 'tanh [33, 31]': ", "gradient 0 of shape [33, 31], element 1020, is "})
    EXPECT_NE(failure.find(part), std::string::npos) << failure << "\nlacks: " << part;
}

TEST(Certify, AnOperationWithoutCasesOfOddSizesIsNotCertified) {
  Context context;
  static bool offered = false;
  offered = true;
  OfferCases cases([](std::vector<OpCase>& all) {
    if (offered) add_case(all, "small_only", "", [](Inputs in) { return tanh(in[0]); }, {{{3}}});
  });
  Certificate certificate = certify("small_only", kCpu);
  offered = false;
  EXPECT_EQ(failed(certificate), "sizes ");
  EXPECT_NE(certificate.properties.back().failure.find("add_size_case"), std::string::npos);
}

TEST(Certify, AnUnknownOperationIsRefused) {
  Context context;
  EXPECT_REFUSED(certify("swishh", kCpu), "swishh", "autograd/ops.h");
}

}  // namespace
}  // namespace shardgrad::test
