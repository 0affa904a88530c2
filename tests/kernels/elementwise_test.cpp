#include <shardgrad/certify/reference/elementwise.h>
#include <shardgrad/core/float_mode.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

const Shape kShapes[] = {{}, {0}, {1}, {7}, {15}, {16}, {17}, {33}, {3, 0}, {5, 41}, {2, 3, 50}};

// Slot and reference share their names.
#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

template <class SlotType, class Reference, class... Args>
void unary_cases(SlotType& slot, const Reference& reference, double low, double high, Tolerance tolerance,
                 Args... args) {
  for (DType dtype : kFloats)
    for (const Shape& shape : kShapes)
      expect_like_reference(slot, reference, dtype, one(shape, dtype), tolerance,
                            Buffer::random(shape, dtype, low, high), args...);
}

TEST(Elementwise, UnaryKernelsMatchTheReference) {
  unary_cases(SG_BOTH(neg), -3, 3, {1});
  unary_cases(SG_BOTH(exp), -9, 9, {3});
  unary_cases(SG_BOTH(log), 0.01, 9, {3});
  unary_cases(SG_BOTH(sqrt), 0, 9, {2});
  unary_cases(SG_BOTH(tanh), -4, 4, {4});
  unary_cases(SG_BOTH(sigmoid), -9, 9, {4});
  unary_cases(SG_BOTH(relu), -3, 3, {1});
  unary_cases(SG_BOTH(abs), -3, 3, {1});
  unary_cases(SG_BOTH(affine), -3, 3, {3}, 1.5, -0.25);
  unary_cases(SG_BOTH(clamp), -3, 3, {1}, -1.0, 0.5);
  unary_cases(SG_BOTH(gelu), -6, 6, {4});
  unary_cases(SG_BOTH(gelu_tanh), -6, 6, {4});
  unary_cases(SG_BOTH(silu), -9, 9, {4});
  for (double exponent : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5, 2.7}) unary_cases(SG_BOTH(pow), 0.2, 3, {4}, exponent);
}

template <class SlotType, class Reference, class... Args>
void backward_cases(SlotType& slot, const Reference& reference, double low, double high, Tolerance tolerance,
                    Args... args) {
  for (DType dtype : kFloats)
    for (const Shape& shape : kShapes)
      expect_like_reference(slot, reference, dtype, one(shape, dtype), tolerance,
                            Buffer::random(shape, dtype, -2, 2, 5), Buffer::random(shape, dtype, low, high), args...);
}

TEST(Elementwise, BackwardKernelsMatchTheReference) {
  backward_cases(SG_BOTH(relu_backward), -1, 1, {1});
  backward_cases(SG_BOTH(tanh_backward), -1, 1, {4});
  backward_cases(SG_BOTH(sigmoid_backward), 0, 1, {4});
  backward_cases(SG_BOTH(sqrt_backward), 0.5, 2, {4});
  backward_cases(SG_BOTH(abs_backward), -1, 1, {1});
  backward_cases(SG_BOTH(gelu_backward), -6, 6, {6});
  backward_cases(SG_BOTH(gelu_tanh_backward), -6, 6, {6});
  backward_cases(SG_BOTH(silu_backward), -9, 9, {6});
  backward_cases(SG_BOTH(clamp_backward), -3, 3, {1}, -1.0, 0.5);
  for (double exponent : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, 2.7})
    backward_cases(SG_BOTH(pow_backward), 0.2, 3, {6}, exponent);
}

struct Operands {
  Shape y, a, b;
};
const Operands kOperands[] = {
    {{}, {}, {}},
    {{0}, {0}, {1}},
    {{33}, {33}, {33}},
    {{33}, {33}, {}},
    {{33}, {1}, {33}},
    {{5, 17}, {5, 17}, {17}},
    {{5, 17}, {17}, {5, 17}},
    {{5, 17}, {5, 1}, {5, 17}},
    {{5, 17}, {5, 1}, {1, 17}},
    {{4, 3, 9}, {4, 1, 9}, {3, 1}},
    {{4, 3, 9}, {3, 9}, {4, 1, 1}},
    {{2, 3, 4, 5}, {3, 1, 5}, {2, 1, 4, 1}},
    {{2, 3, 1, 5}, {2, 1, 1, 5}, {1, 3, 1, 1}},
};

template <class SlotType, class Reference>
void binary_cases(SlotType& slot, const Reference& reference, std::span<const DType> dtypes, Tolerance tolerance) {
  for (DType dtype : dtypes)
    for (const Operands& o : kOperands)
      expect_like_reference(slot, reference, dtype, one(o.y, dtype), tolerance, Buffer::random(o.a, dtype, 1, 9, 3),
                            Buffer::random(o.b, dtype, is_floating(dtype) ? -9 : 0, -1, 4));
}

TEST(Elementwise, ArithmeticBroadcastsEveryWay) {
  binary_cases(SG_BOTH(add), kFloats, {1});
  binary_cases(SG_BOTH(sub), kFloats, {1});
  binary_cases(SG_BOTH(mul), kFloats, {1});
  binary_cases(SG_BOTH(div), kFloats, {1});
}

TEST(Elementwise, IntegerArithmeticIsExactAndWraps) {
  for (DType dtype : kIntegers) {
    Buffer a = Buffer::random({5, 17}, dtype, -100, 100, 3), b = Buffer::random({17}, dtype, -100, 100, 4);
    dispatch(dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T>) a.set(3, double(std::numeric_limits<T>::max()));
    });
    Buffer same = Buffer::random({5, 17}, dtype, -100, 100, 5);
    for (const Buffer& other : {b, same}) {
      expect_like_reference(SG_BOTH(add), dtype, one({5, 17}, dtype), {0}, a, other);
      expect_like_reference(SG_BOTH(sub), dtype, one({5, 17}, dtype), {0}, other, a);
      expect_like_reference(SG_BOTH(mul), dtype, one({5, 17}, dtype), {0}, a, other);
    }
    Buffer divisors = Buffer::random({17}, dtype, 1, 20, 6), whole = Buffer::random({5, 17}, dtype, 1, 20, 7);
    if (dtype != DType::u8) divisors.set(0, -1), divisors.set(1, -7), whole.set(3, -3);
    for (const Shape& shape : {Shape{17}, Shape{5, 17}})
      expect_like_reference(SG_BOTH(power), dtype, one({5, 17}, dtype), {0}, a, Buffer::random(shape, dtype, 0, 9, 8));
    for (const Buffer& divisor : {divisors, whole}) {
      expect_like_reference(SG_BOTH(remainder), dtype, one({5, 17}, dtype), {0}, a, divisor);
      expect_like_reference(SG_BOTH(floor_divide), dtype, one({5, 17}, dtype), {0}, a, divisor);
    }
  }
}

TEST(Elementwise, IntegersHaveScaleShiftSignAndBounds) {
  for (DType dtype : kIntegers) {
    Buffer x = Buffer::of({6}, dtype, {0, 1, 5, 100, dtype == DType::u8 ? 250. : -7, 127});
    expect_like_reference(
        kernels::affine,
        [](OutView y, View x, double scale, double shift) {
          for (int64_t i = 0; i < 6; ++i)
            reference::put_integer(y, i, int64_t(scale) * reference::get_integer(x, i) + int64_t(shift));
        },
        dtype, one({6}, dtype), {0}, x, -3.0, 1.0);
    expect_like_reference(
        kernels::neg,
        [](OutView y, View x) {
          for (int64_t i = 0; i < 6; ++i) reference::put_integer(y, i, -reference::get_integer(x, i));
        },
        dtype, one({6}, dtype), {0}, x);
    expect_like_reference(
        kernels::abs,
        [](OutView y, View x) {
          for (int64_t i = 0; i < 6; ++i) reference::put_integer(y, i, std::abs(reference::get_integer(x, i)));
        },
        dtype, one({6}, dtype), {0}, x);
    expect_like_reference(
        kernels::clamp,
        [](OutView y, View x, double low, double high) {
          for (int64_t i = 0; i < 6; ++i)
            reference::put_integer(y, i,
                                   std::clamp<int64_t>(reference::get_integer(x, i), int64_t(low), int64_t(high)));
        },
        dtype, one({6}, dtype), {0}, x, 1.0, 100.0);
  }
}

TEST(Elementwise, ComparisonsOfEveryDtypeBroadcast) {
  for (DType dtype : kAll)
    for (const Operands& o : kOperands) {
      double low = is_floating(dtype) ? -1 : 0;
      Buffer a = Buffer::random(o.a, dtype, low, 2, 3), b = Buffer::random(o.b, dtype, low, 2, 4);
      if (a.numel() > 2 && b.numel() > 2) b.set(1, a.get(1));
      expect_like_reference(SG_BOTH(eq), dtype, one(o.y, DType::u8), {0}, a, b);
      expect_like_reference(SG_BOTH(ne), dtype, one(o.y, DType::u8), {0}, a, b);
      expect_like_reference(SG_BOTH(lt), dtype, one(o.y, DType::u8), {0}, a, b);
      expect_like_reference(SG_BOTH(le), dtype, one(o.y, DType::u8), {0}, a, b);
      expect_like_reference(SG_BOTH(gt), dtype, one(o.y, DType::u8), {0}, a, b);
      expect_like_reference(SG_BOTH(ge), dtype, one(o.y, DType::u8), {0}, a, b);
    }
}

TEST(Elementwise, ComparisonsWithNaNAreFalseButForNotEqual) {
  Context context;
  Buffer a = Buffer::of({2}, DType::f32, {NAN, 1}), b = Buffer::of({2}, DType::f32, {NAN, NAN});
  Buffer y({2}, DType::u8);
  for (auto* slot : {&kernels::eq, &kernels::lt, &kernels::le, &kernels::gt, &kernels::ge}) {
    kernel_of(*slot, DType::f32)(1, y.poison().out(), a.in(), b.in());
    EXPECT_EQ(y.get(0) + y.get(1), 0) << slot->name();
  }
  kernel_of(kernels::ne, DType::f32)(1, y.poison().out(), a.in(), b.in());
  EXPECT_EQ(y.get(0) + y.get(1), 2);
}

TEST(Elementwise, WhereChoosesElementsOfEveryDtype) {
  for (DType dtype : kAll)
    for (const Operands& o : kOperands) {
      Buffer a = Buffer::random(o.a, dtype, 0, 9, 3), b = Buffer::random(o.b, dtype, 0, 9, 4);
      for (const Shape& shape : {o.y, o.a, o.b})
        expect_like_reference(SG_BOTH(where), dtype, one(o.y, dtype), {dtype == DType::f64 ? 1.0 : 1.0},
                              Buffer::random(shape, DType::u8, 0, 1, 6), a, b);
    }
}

TEST(Elementwise, FillCopyAndExpandServeEveryDtype) {
  for (DType dtype : kAll)
    for (const Operands& o : kOperands) {
      expect_like_reference(SG_BOTH(fill), dtype, one(o.y, dtype), {1}, 3.0);
      expect_like_reference(SG_BOTH(copy), dtype, one(o.y, dtype), {1}, Buffer::random(o.y, dtype, 0, 9));
      expect_like_reference(SG_BOTH(expand), dtype, one(o.y, dtype), {1}, Buffer::random(o.a, dtype, 0, 9));
    }
}

TEST(Elementwise, CastConvertsEveryPair) {
  for (DType from : kAll)
    for (DType to : kAll)
      for (const Shape& shape : kShapes)
        expect_like_reference(SG_BOTH(cast), from, one(shape, to), {1}, Buffer::random(shape, from, -200, 300));
}

TEST(Elementwise, CastOfFloatsToIntegersTruncatesAndStopsAtTheEnds) {
  std::vector<double> values = {-1.9,  1.9, 1e30, -1e30,  INFINITY, -INFINITY, NAN,
                                255.9, 256, -0.0, 0x1p31, -0x1p31,  0x1p63,    -0x1p63};
  for (DType from : {DType::f32, DType::f64})
    for (DType to : kIntegers)
      expect_like_reference(SG_BOTH(cast), from, one({14}, to), {0}, Buffer::of({14}, from, values));
}

TEST(Elementwise, CastToHalvesRoundsToNearestEvenForEveryPattern) {
  Context context;
  for (DType half : {DType::bf16, DType::f16}) {
    Buffer wide({1 << 16}, DType::f32), narrow({1 << 16}, half), back({1 << 16}, DType::f32);
    for (uint32_t upper = 0; upper < (1u << 16); upper += 7) {
      for (uint32_t i = 0; i < (1u << 16); ++i) {  // upper bits of the float from i, lower ones from `upper`
        uint32_t bits = i << 16 | ((upper * 40503u) & 0xffffu);
        wide.out().as<uint32_t>()[i] = bits;
      }
      kernel_of(kernels::cast, DType::f32)(1, narrow.out(), wide.in());
      for (uint32_t i = 0; i < (1u << 16); ++i) {
        float value = wide.in().as<float>()[i];
        uint16_t expected = half == DType::bf16 ? bf16(value).bits : f16(value).bits;
        uint16_t actual = narrow.in().as<uint16_t>()[i];
        ASSERT_TRUE(std::isnan(value) ? std::isnan(narrow.get(i)) : actual == expected) << value;
      }
      if (upper > 700) break;
    }
    for (uint32_t i = 0; i < (1u << 16); ++i) narrow.out().as<uint16_t>()[i] = uint16_t(i);
    kernel_of(kernels::cast, half)(1, back.out(), narrow.in());
    for (int64_t i = 0; i < (1 << 16); ++i) ASSERT_TRUE(back.get(i) == narrow.get(i) || std::isnan(narrow.get(i)));
  }
}

// A subnormal is slow to make and to read, also where the thread does not flush it.
TEST(CpuElementwise, ExpIsExactlyZeroBelowTheSmallestNormalNumber) {
  Context context;
  std::vector<double> numbers{-87.34, -87.4, -88, -90, -96, -103, -104, -1e4, -1e30, -INFINITY};
  while (numbers.size() < 37) numbers.push_back(-87.4 - double(numbers.size()));
  Buffer x = Buffer::of({37}, DType::f32, numbers), y({37}, DType::f32), smallest({1}, DType::f32);
  KeepSubnormals mode;
  kernel_of(kernels::exp, DType::f32)(1, y.out(), x.in());
  for (int64_t i = 0; i < y.numel(); ++i) EXPECT_EQ(y.get(i), 0) << "exp(" << x.get(i) << ")";
  kernel_of(kernels::exp, DType::f32)(1, smallest.out(), Buffer::of({1}, DType::f32, {-87.33}).in());
  EXPECT_GE(smallest.get(0), 0x1p-126) << "which is still normal";
}

TEST(Elementwise, ElementaryFunctionsOfF32StayWithinAFewUlp) {
  Context context;
  struct Function {
    Slot<OutView, View>& slot;
    double (*exact)(double);
    double low, high, ulps;
  };
  double of_exp = test_device() == DeviceKind::cuda ? 2 : 1.5;  // CUDA's expf is documented to be right to 2
  const Function functions[] = {
      {kernels::exp, [](double x) { return std::exp(x); }, -87.3, 88.7, of_exp},
      {kernels::log, [](double x) { return std::log(x); }, 1e-6, 1e6, 1.5},
      {kernels::tanh, [](double x) { return std::tanh(x); }, -10, 10, 2},
      {kernels::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 3},
      {kernels::sqrt, [](double x) { return std::sqrt(x); }, 0, 1e6, 0.5},
      {kernels::sin, [](double x) { return std::sin(x); }, -20, 20, 2},
      {kernels::cos, [](double x) { return std::cos(x); }, -20, 20, 2},
      {kernels::erf, [](double x) { return std::erf(x); }, -5, 5, 2},
  };
  for (const Function& f : functions) {
    Buffer x = Buffer::random({100003}, DType::f32, f.low, f.high), y({100003}, DType::f32);
    kernel_of(f.slot, DType::f32)(1, y.out(), x.in());
    KeepSubnormals mode;  // an ulp of the smallest numbers is one
    for (int64_t i = 0; i < x.numel(); ++i) {
      double exact = f.exact(x.get(i));
      float ulp = std::nextafter(std::abs(float(exact)), INFINITY) - std::abs(float(exact));
      ASSERT_LE(std::abs(y.get(i) - exact), f.ulps * double(ulp)) << f.slot.name() << '(' << x.get(i) << ')';
    }
  }
}

// What is large goes another way than what is beside it.
TEST(Elementwise, SinesOfLargeAndSmallNumbersStandSideBySide) {
  Context context;
  const std::vector<double> places = {0.5, 12345.671875, -3, 1e6, -8191.5, -8192.5, 0, 2.5, 9e9, 1, 1, 1, 1, 1, 1,
                                      1,   1e5};
  int64_t n = int64_t(places.size());
  Buffer x = Buffer::of({n}, DType::f32, places), sine({n}, DType::f32), cosine({n}, DType::f32);
  kernel_of(kernels::sin, DType::f32)(1, sine.poison().out(), x.in());
  kernel_of(kernels::cos, DType::f32)(1, cosine.poison().out(), x.in());
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_NEAR(sine.get(i), std::sin(x.get(i)), 2e-7) << x.get(i);
    EXPECT_NEAR(cosine.get(i), std::cos(x.get(i)), 2e-7) << x.get(i);
  }
}

// Where GELU is small 1 + erf(x) has lost what it is made of.
TEST(CpuElementwise, GeluIsRightWhereItIsSmall) {
  Context context;
  Buffer x = Buffer::random({10007}, DType::f32, -5.5, 0), y({10007}, DType::f32);
  kernel_of(kernels::gelu, DType::f32)(1, y.out(), x.in());
  for (int64_t i = 0; i < x.numel(); ++i) {
    double exact = x.get(i) * 0.5 * std::erfc(-x.get(i) / std::sqrt(2.0));
    ASSERT_NEAR(y.get(i), exact, 4e-6 * std::abs(exact)) << x.get(i);
  }
}

TEST(Elementwise, SpecialValuesFollowTheMathematics) {
  Context context;
  Buffer x = Buffer::of({8}, DType::f32, {INFINITY, -INFINITY, NAN, 0, -0.0, -1, 1e-42, 200}), y({8}, DType::f32);
  auto run = [&](Slot<OutView, View>& slot) {
    kernel_of(slot, DType::f32)(1, y.poison().out(), x.in());
    std::vector<double> values;
    for (int64_t i = 0; i < 8; ++i) values.push_back(y.get(i));
    return values;
  };
  auto expect = [&](Slot<OutView, View>& slot, const std::vector<double>& expected) {
    std::vector<double> actual = run(slot);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i])))
          << slot.name() << '(' << x.get(int64_t(i)) << ") is " << actual[i] << ", expected " << expected[i];
  };
  expect(kernels::exp, {INFINITY, 0, NAN, 1, 1});
  EXPECT_EQ(run(kernels::exp)[7], INFINITY);
  expect(kernels::log, {INFINITY, NAN, NAN, -INFINITY, -INFINITY, NAN});
  expect(kernels::tanh, {1, -1, NAN, 0, 0});
  expect(kernels::sigmoid, {1, 0, NAN, 0.5, 0.5});
  expect(kernels::relu, {INFINITY, 0, NAN, 0, 0, 0});
  expect(kernels::abs, {INFINITY, INFINITY, NAN, 0, 0, 1});
  expect(kernels::sqrt, {INFINITY, NAN, NAN, 0, 0, NAN});
}

// Far out GELU is a line or nothing, as far as its input is finite. At infinity its gradient is NaN, as PyTorch's is.
TEST(Elementwise, GradientsOfGeluFarOutAreOneAndZero) {
  Context context;
  std::vector<double> far = {40, 1e4}, farther = {1e13, 1e20, 3e38}, farthest = {1e110, 1e160, 1e300};
  for (DType dtype : kFloats) {
    std::vector<double> places = far;
    if (dtype != DType::f16) places.insert(places.end(), farther.begin(), farther.end());
    if (dtype == DType::f64) places.insert(places.end(), farthest.begin(), farthest.end());
    places.insert(places.end(), {INFINITY, NAN});
    int64_t n = int64_t(places.size());
    for (auto* slot : {&kernels::gelu_backward, &kernels::gelu_tanh_backward})
      for (double sign : {1, -1}) {
        Buffer x({n}, dtype), dy({n}, dtype), dx({n}, dtype), expected({n}, dtype);
        for (int64_t i = 0; i < n; ++i) x.set(i, sign * places[size_t(i)]), dy.set(i, 3);
        kernel_of(*slot, dtype)(1, dx.poison().out(), dy.in(), x.in());
        if (slot == &kernels::gelu_backward)
          reference::gelu_backward(expected.out(), dy.in(), x.in());
        else
          reference::gelu_tanh_backward(expected.out(), dy.in(), x.in());
        for (int64_t i = 0; i < n; ++i)
          for (double gradient : {dx.get(i), expected.get(i)}) {
            if (std::isfinite(x.get(i)))
              EXPECT_EQ(gradient, sign > 0 ? 3 : 0) << slot->name() << ' ' << dtype << " at " << x.get(i);
            else
              EXPECT_TRUE(std::isnan(gradient)) << slot->name() << ' ' << dtype << " at " << x.get(i);
          }
      }
  }
}

// What sharding rests on: a shard's elements get the bits they would get in the whole tensor.
template <class SlotType, class... Args>
void expect_split_invariance(SlotType& slot, DType dtype, const std::vector<Buffer>& inputs, Args... args) {
  Context context;
  auto kernel = kernel_of(slot, dtype);
  int64_t n = inputs[0].numel();
  auto piece = [&](const Buffer& buffer, int64_t begin, int64_t end) {
    View view = buffer.in();
    return View{view.as<char>() + size_t(begin) * size_of(dtype), {end - begin}, dtype, true};
  };
  auto run = [&](Buffer& y, int64_t begin, int64_t end) {
    OutView out{y.out().as<char>() + size_t(begin) * size_of(dtype), {end - begin}, dtype, y.numel() ? 1.0f : 0, true};
    if constexpr (std::is_invocable_v<decltype(kernel), int, OutView, View, Args...>)
      kernel(1, out, piece(inputs[0], begin, end), args...);
    else
      kernel(1, out, piece(inputs[0], begin, end), piece(inputs[1], begin, end), args...);
  };
  Buffer start = Buffer::random({n}, dtype, -1, 1, 77), whole = start;
  run(whole, 0, n);
  for (int64_t k = 0; k <= n; ++k) {
    Buffer parts = start;
    run(parts, 0, k);
    run(parts, k, n);
    ASSERT_TRUE(parts == whole) << slot.name() << ' ' << dtype << " cut at " << k;
  }
}

// With numbers, if it has any, that no shortcut is for.
template <class... Params>
void expect_split_invariance_of(Slot<Params...>& slot, DType dtype, const std::vector<Buffer>& inputs) {
  constexpr int numbers = (int(std::is_same_v<Params, double>) + ... + 0);
  if constexpr (numbers == 0)
    expect_split_invariance(slot, dtype, inputs);
  else if constexpr (numbers == 1)
    expect_split_invariance(slot, dtype, inputs, 2.7);
  else
    expect_split_invariance(slot, dtype, inputs, 0.5, 2.0);
}

TEST(Elementwise, APieceGetsTheBitsOfTheWholeWhereverItIsCut) {
  for (DType dtype : kFloats) {
    std::vector<Buffer> x = {Buffer::random({67}, dtype, 0.1, 3, 1), Buffer::random({67}, dtype, 0.1, 3, 2)};
    expect_split_invariance(kernels::copy, dtype, x);
#define SG_SPLIT(name, ...) expect_split_invariance_of(kernels::name, dtype, x);
    SG_UNARIES(SG_SPLIT, SG_SPLIT, SG_SPLIT)
    SG_BINARIES(SG_SPLIT)
  }
}

/// Values that begin `shift` elements after a multiple of 16 bytes: kernels may read several at once where that is 0.
struct PlacedOperand {
  int64_t begin;
  Buffer memory;  // begins one element after such a multiple itself
  PlacedOperand(const Buffer& values, int64_t shift)
      : begin(16 / int64_t(size_of(values.dtype())) - 1 + shift), memory({values.numel() + 32}, values.dtype()) {
    for (int64_t i = 0; i < values.numel(); ++i) memory.set(begin + i, values.get(i));
  }
  View in(const Shape& shape) const {
    return {memory.in().as<char>() + size_t(begin) * size_of(memory.dtype()), shape, memory.dtype(), true};
  }
  OutView out(const Shape& shape, float beta) {
    return {memory.out().as<char>() + size_t(begin) * size_of(memory.dtype()), shape, memory.dtype(), beta, true};
  }
};

// y and its operands at a multiple of 16 bytes or beside it, in every combination: the same results.
template <class... Views>
void expect_the_same_at_every_place(Slot<OutView, Views...>& slot, DType key, const Buffer& y,
                                    const std::array<Buffer, sizeof...(Views)>& operands) {
  Context context;
  constexpr int count = sizeof...(Views);
  for (float beta : {0.0f, 1.0f}) {
    std::vector<double> expected;
    for (int shifts = (2 << count) - 1; shifts >= 0; --shifts) {  // the first: nothing where packs begin
      PlacedOperand result(y, shifts >> count);
      [&]<size_t... K>(std::index_sequence<K...>) {
        PlacedOperand placed[] = {PlacedOperand(operands[K], shifts >> K & 1)...};
        kernel_of(slot, key)(1, result.out(y.shape(), beta), placed[K].in(operands[K].shape())...);
      }
      (std::make_index_sequence<count>());
      std::vector<double> values;
      for (int64_t i = 0; i < y.numel(); ++i) values.push_back(result.memory.get(result.begin + i));
      if (expected.empty()) expected = values;
      ASSERT_EQ(values, expected) << slot.name() << ' ' << key << ' ' << y.shape() << " from "
                                  << operands[count - 2].shape() << " and " << operands[count - 1].shape()
                                  << " at places " << shifts;
    }
  }
}

TEST(Elementwise, BroadcastOperandsMayLieAnywhere) {
  for (int64_t n : {1, 3, 16, 32, 67})
    for (const Operands& o : {Operands{{n}, {n}, {n}},
                              {{n}, {n}, {}},
                              {{n}, {1}, {n}},
                              {{5, n}, {5, n}, {n}},
                              {{5, n}, {5, 1}, {5, n}},
                              {{3, n}, {n}, {3, 1}},
                              {{2, 3, n}, {2, 1, n}, {3, 1}}})
      for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8}) {
        Buffer a = Buffer::random(o.a, dtype, 0, 3, 3), b = Buffer::random(o.b, dtype, 0, 3, 4);
        Buffer y = Buffer::random(o.y, dtype, 0, 3, 5), truth = Buffer::random(o.y, DType::u8, 0, 1, 6);
        expect_the_same_at_every_place(kernels::sub, dtype, y, {a, b});
        expect_the_same_at_every_place(kernels::le, dtype, truth, {a, b});
        expect_the_same_at_every_place(kernels::where, dtype, y, {truth, a, b});
      }
}

TEST(Elementwise, LargeTensorsGiveTheSameBitsForEveryNumberOfThreads) {
  Shape large{301, 517};
  for (DType dtype : {DType::f32, DType::bf16}) {
    Buffer x = Buffer::random(large, dtype, 0.1, 3), row = Buffer::random({517}, dtype);
    expect_like_reference(SG_BOTH(exp), dtype, one(large, dtype), {3}, x);
    expect_like_reference(SG_BOTH(add), dtype, one(large, dtype), {1}, x, row);
    expect_like_reference(SG_BOTH(mul), dtype, one(large, dtype), {1}, x, x);
    expect_like_reference(SG_BOTH(lt), dtype, one(large, DType::u8), {0}, x, row);
    expect_like_reference(SG_BOTH(cast), dtype, one(large, DType::f32), {1}, x);
    expect_like_reference(SG_BOTH(expand), dtype, one(large, dtype), {1}, row);
  }
}

TEST(Elementwise, OperandsMayBeTheDestination) {
  Context context;
  Buffer x = Buffer::random({100}, DType::f32), y = x;
  kernel_of(kernels::exp, DType::f32)(1, y.out(), y.in());
  for (int64_t i = 0; i < 100; ++i) EXPECT_FLOAT_EQ(float(y.get(i)), float(std::exp(x.get(i))));
  y = x;
  kernel_of(kernels::add, DType::f32)(1, y.out(), y.in(), x.in());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(y.get(i), 2 * x.get(i));
}

}  // namespace
}  // namespace shardgrad::test
