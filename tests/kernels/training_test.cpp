#include <pthread.h>

#include <bit>
#include <cmath>
#include <set>

#include <shardgrad/certify/reference/rest.h>
#include <shardgrad/core/rng.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

TEST(Random, UniformNumbersArePureFunctionsOfSeedStreamAndIndex) {
  for (DType dtype : kFloats)
    for (int64_t begin : {0, 1, 2, 3, 255, 1000003})
      for (int64_t n : {0, 1, 5, 255, 256, 257, 1000}) {
        kernels::RandomArgs args{0x123456789abcdefu, 0xfedcba9876543210u, begin, -0.5, 1.5};
        expect_like_reference(SG_BOTH(random_uniform), dtype, one({n}, dtype), {2}, args);
      }
}

TEST(Random, NormalNumbersArePureFunctionsOfSeedStreamAndIndex) {
  for (DType dtype : kFloats)
    for (int64_t begin : {0, 1, 2, 3, 1000003})
      for (int64_t n : {0, 1, 5, 257, 1000})
        expect_like_reference(SG_BOTH(random_normal), dtype, one({n}, dtype), {6},
                              kernels::RandomArgs{7, 9, begin, 1, 2});
}

TEST(Random, FineDoublesHave53BitsOfWhichTheFirstAreTheCoarseOnes) {
  for (int64_t begin : {0, 3, 255})
    for (int64_t n : {257, 302}) {
      kernels::RandomArgs args{7, 9, begin, 1, 2, true};
      for (DType dtype : kFloats) {
        expect_like_reference(SG_BOTH(random_uniform), dtype, one({n}, dtype), {2}, args);
        expect_like_reference(SG_BOTH(random_normal), dtype, one({n}, dtype), {6}, args);
      }
    }
  Context context;
  Buffer fine({4096}, DType::f64), coarse({4096}, DType::f64);
  auto kernel = kernel_of(kernels::random_uniform, DType::f64);
  kernel(1, fine.out(), {7, 9, 0, 0, 1, true});
  kernel(1, coarse.out(), {7, 9, 0, 0, 1});
  int odd = 0;
  for (int64_t i = 0; i < 4096; ++i) {
    EXPECT_EQ(std::floor(fine.get(i) * 0x1p24), coarse.get(i) * 0x1p24);
    odd += std::fmod(fine.get(i) * 0x1p53, 2) != 0;
  }
  EXPECT_NEAR(odd, 2048, 200) << "the last bit is random too";
}

TEST(Random, ARangeIsFilledAsTheWholeWouldBe) {
  Context context;
  for (DType dtype : kFloats)
    for (auto* slot : {&kernels::random_uniform, &kernels::random_normal}) {
      Buffer whole({301}, dtype), parts({301}, dtype);
      auto kernel = kernel_of(*slot, dtype);
      kernel(1, whole.poison().out(), {3, 4, 0, 0, 1});
      for (int64_t cut : {0, 1, 2, 3, 4, 5, 63, 64, 65, 300}) {
        char* data = parts.poison().out().as<char>();
        kernel(1, {data, {cut}, dtype, 0, true}, {3, 4, 0, 0, 1});
        kernel(1, {data + size_t(cut) * size_of(dtype), {301 - cut}, dtype, 0, true}, {3, 4, cut, 0, 1});
        EXPECT_TRUE(parts == whole) << slot->name() << ' ' << dtype << " cut at " << cut;
      }
    }
}

TEST(Random, UniformNumbersStayBelowTheOpenEnd) {
  Context context;
  for (DType dtype : kFloats) {
    Buffer y({200000}, dtype);
    kernel_of(kernels::random_uniform, dtype)(1, y.out(), {1, 2, 0, 2, 3});
    double low = 3, high = 2;
    for (int64_t i = 0; i < y.numel(); ++i) low = std::min(low, y.get(i)), high = std::max(high, y.get(i));
    EXPECT_GE(low, 2);
    EXPECT_LT(high, 3) << dtype;
  }
}

TEST(Random, MomentsAreThoseOfTheDistribution) {
  Context context;
  Buffer y({400000}, DType::f32);
  auto moments = [&] {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < y.numel(); ++i) mean += y.get(i) / 4e5, square += y.get(i) * y.get(i) / 4e5;
    return std::pair(mean, square - mean * mean);
  };
  kernel_of(kernels::random_normal, DType::f32)(2, y.out(), {11, 5, 0, 3, 2});
  EXPECT_NEAR(moments().first, 3, 0.02);
  EXPECT_NEAR(moments().second, 4, 0.05);
  kernel_of(kernels::random_uniform, DType::f32)(2, y.out(), {11, 5, 0, -1, 1});
  EXPECT_NEAR(moments().first, 0, 0.005);
  EXPECT_NEAR(moments().second, 1.0 / 3, 0.005);
}

TEST(Random, DropoutKeepsByPositionOnly) {
  for (DType dtype : kFloats)
    for (double p : {0.0, 0.1, 0.5, 0.7})
      for (int64_t first : {0, 3, 1001})
        for (int64_t n : {0, 1, 70, 1000})
          expect_like_reference(SG_BOTH(dropout), dtype, one({n}, dtype), {2}, Buffer::random({n}, dtype), Buffer(),
                                kernels::DropoutArgs{p, 5, 6, first});
}

TEST(Random, DropoutTakesSeedAndStreamFromTheDevicesMemory) {
  Context context;
  for (DType dtype : kFloats) {
    Buffer x = Buffer::random({100}, dtype), plain({100}, dtype), again({100}, dtype);
    Buffer drawn = Buffer::of({2}, DType::i64, {5, 6});
    kernel_of(kernels::dropout, dtype)(1, plain.poison().out(), x.in(), {}, {0.4, 5, 6, 3});
    kernel_of(kernels::dropout, dtype)(1, again.poison().out(), x.in(), drawn.in(), {0.4, 1, 2, 3});
    EXPECT_TRUE(plain == again) << dtype;
  }
}

TEST(Random, DropoutOfEverythingIsZero) {
  Context context;
  Buffer x = Buffer::random({100}, DType::f32), y({100}, DType::f32);
  kernel_of(kernels::dropout, DType::f32)(1, y.poison().out(), x.in(), {}, {1.0, 5, 6, 0});
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(y.get(i), 0);
}

// A copy in another dtype holds exactly the values, rounded once.
void expect_copy(const Buffer& copy, const Buffer& values, const std::string& what) {
  if (!copy.defined()) return;
  Buffer rounded(values.shape(), copy.dtype());
  for (int64_t i = 0; i < values.numel(); ++i) {
    rounded.set(i, values.get(i));
    ASSERT_EQ(copy.get(i), rounded.get(i)) << what << ": element " << i << " of the copy in " << copy.dtype();
  }
}

// Optimizers update in place: the "outputs" begin as the state. The last one is the copy of the values.
template <class SlotType, class Reference, class Args>
void expect_step(SlotType& slot, const Reference& reference, DType dtype, int64_t n, std::vector<Buffer> state,
                 const Buffer& g, const Args& args, Tolerance tolerance) {
  Context context;
  if (state.back().defined()) state.back().poison();
  std::vector<Buffer> expected = state, whole = state;
  auto kernel = kernel_of(slot, dtype);
  Buffer scale = n % 2 ? Buffer::of({1}, DType::f64, {0.75}) : Buffer();
  auto run = [&](const auto& step, std::vector<Buffer>& buffers, int64_t begin, int64_t end) {
    auto out = [&](size_t k) {
      OutView view = buffers[k].out();
      if (!view.defined()) return view;
      return OutView{view.as<char>() + size_t(begin) * size_of(view.dtype), {end - begin}, view.dtype, 0, true};
    };
    View grad{g.in().as<char>() + size_t(begin) * size_of(dtype), {end - begin}, dtype, true};
    if constexpr (std::is_same_v<Args, kernels::SgdArgs>)
      step(kernels::one_range(out(0), {out(1), {}}, out(2), grad, args), scale.in());
    else
      step(kernels::one_range(out(0), {out(1), out(2)}, out(3), grad, args), scale.in());
  };
  auto launch = [&](auto... all) { kernel(2, all...); };
  run(reference, expected, 0, n);
  run(launch, whole, 0, n);
  for (size_t k = 0; k + 1 < state.size(); ++k)
    if (state[k].defined())
      expect_close(whole[k], expected[k], state[k], 0, tolerance, concat(slot.name(), ' ', dtype));
  expect_copy(whole.back(), whole.front(), concat(slot.name(), ' ', dtype));
  if (state.back().defined()) expect_guards_untouched(whole.back(), state.back(), slot.name());
  for (int64_t cut = 0; cut <= n; cut += n > 100 ? 23333 : 1) {
    std::vector<Buffer> parts = state;
    run(launch, parts, 0, cut);
    run(launch, parts, cut, n);
    ASSERT_TRUE(parts == whole) << slot.name() << ' ' << dtype << " cut at " << cut;
  }
}

// None, and one in each narrower dtype.
std::vector<Buffer> copies_of(DType dtype, int64_t n) {
  std::vector<Buffer> copies(1);
  for (DType narrower : kFloats)
    if (size_of(narrower) < size_of(dtype)) copies.emplace_back(Shape{n}, narrower);
  return copies;
}

TEST(Optimizers, SgdFollowsTorchAndGivesTheSameBitsWhereverItIsCut) {
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t n : {0, 1, 17, 67, 70001}) {
      Buffer p = Buffer::random({n}, dtype), g = Buffer::random({n}, dtype, -1, 1, 3), none;
      Buffer momentum = Buffer::random({n}, dtype, -1, 1, 4);
      auto step = [](auto ranges, View scale) {
        const auto& [p, state, copy, g, args, numbers] = ranges->front();
        reference::sgd(p, state[0], copy, g, scale, args);
      };
      expect_step(kernels::sgd, step, dtype, n, {p, none, none}, g,
                  kernels::SgdArgs{0.1, 0, 0, 0.01, false, false, 0.5}, {4});
      for (bool nesterov : {false, true})
        for (bool first : {false, true})
          for (const Buffer& copy : copies_of(dtype, n))
            expect_step(kernels::sgd, step, dtype, n, {p, momentum, copy}, g,
                        kernels::SgdArgs{0.1, 0.9, nesterov ? 0 : 0.2, 0.01, nesterov, first, 1}, {4});
    }
}

TEST(Optimizers, AFirstStepDoesNotReadTheMomentumBuffer) {
  Context context;
  Buffer p = Buffer::random({20}, DType::f32), momentum({20}, DType::f32);
  kernels::SgdArgs args{0.1, 0.9, 0, 0, false, true, 1};
  kernel_of(kernels::sgd, DType::f32)(1, kernels::one_range(p.out(), {momentum.poison().out(), {}}, {}, p.in(), args),
                                      {});
  for (int64_t i = 0; i < 20; ++i) EXPECT_TRUE(std::isfinite(p.get(i)) && std::isfinite(momentum.get(i)));
}

TEST(Optimizers, AdamFollowsTorchAndGivesTheSameBitsWhereverItIsCut) {
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t n : {0, 1, 17, 67, 70001})
      for (bool decoupled : {false, true}) {
        Buffer p = Buffer::random({n}, dtype), g = Buffer::random({n}, dtype, -1, 1, 3);
        Buffer mean = Buffer::random({n}, dtype, -1, 1, 4), square = Buffer::random({n}, dtype, 0, 1, 5);
        kernels::AdamArgs args{1e-2, 0.9, 0.999, 1e-8, 0.1, decoupled, 1 - std::pow(0.9, 3), 1 - std::pow(0.999, 3),
                               0.5};
        auto step = [](auto ranges, View scale) {
          const auto& [range_p, state, copy, grad, how, numbers] = ranges->front();
          reference::adam(range_p, state[0], state[1], copy, grad, scale, how);
        };
        for (const Buffer& copy : copies_of(dtype, n))
          expect_step(kernels::adam, step, dtype, n, {p, mean, square, copy}, g, args, {8});
      }
}

// Of one range.
Buffer powers_of(const Buffer& x, double p, int64_t width, int threads = 1) {
  Buffer y({(x.numel() + width - 1) / width}, DType::f64);
  y.poison();
  Buffer before = y;
  auto range = std::make_shared<std::vector<kernels::NormRange>>(1, kernels::NormRange{y.out(), x.in(), width});
  kernel_of(kernels::norm_powers, x.dtype())(threads, range, p);
  expect_guards_untouched(y, before, "norm_powers");
  return y;
}

TEST(NormPowers, AreSummedByNeighboursInF64) {
  Context context;
  for (DType dtype : kFloats)
    for (int64_t width : {kernels::kNormBlock, kernels::kNormNode})
      for (int64_t n : {0, 1, 31, 32, 33, 255, 1000, 32768, 70000})
        for (double p : {1.0, 2.0, 3.0, 2.5, double(INFINITY)}) {
          Buffer x = Buffer::random({n}, dtype), found = powers_of(x, p, width), expected(found.shape(), DType::f64);
          reference::norm_powers(expected.out(), x.in(), p, width);
          expect_close(found, expected, expected, 0, {16}, concat("norm_powers of ", n, ' ', dtype));
          EXPECT_TRUE(found == powers_of(x, p, width, 3)) << "on three threads";
        }
}

// Ranges of both widths and all lengths, some empty, some not where packs begin.
TEST(NormPowers, RangesOfOneCallHaveTheBitsOfCallsOfTheirOwn) {
  Context context;
  for (DType dtype : kFloats) {
    std::vector<Buffer> xs, ys;
    std::vector<int64_t> widths;
    for (size_t i = 0; i < kernels::kNormsTogether; ++i) {
      int64_t n = std::array{0, 1, 33, 500, 33000}[i % 5] + int64_t(i);
      widths.push_back(i % 3 ? kernels::kNormNode : kernels::kNormBlock);
      xs.push_back(Buffer::random({n}, dtype, -2, 2, uint32_t(i)));
      ys.emplace_back(Shape{(n + widths[i] - 1) / widths[i]}, DType::f64);
    }
    auto all = std::make_shared<std::vector<kernels::NormRange>>();
    for (size_t i = 0; i < xs.size(); ++i) all->push_back({ys[i].poison().out(), xs[i].in(), widths[i]});
    kernel_of(kernels::norm_powers, dtype)(2, all, 2);
    for (size_t i = 0; i < xs.size(); ++i)
      EXPECT_EQ(ys[i].values(), powers_of(xs[i], 2, widths[i]).values()) << dtype << ' ' << i;
  }
}

// So a rank that holds whole subtrees needs no value for each block of them.
TEST(NormPowers, ANodeHasTheBitsOfTheTreeOverItsBlocks) {
  Context context;
  for (DType dtype : {DType::f32, DType::bf16})
    for (int64_t n :
         {int64_t(1), int64_t(33), int64_t(1000), int64_t(5 * 32), kernels::kNormNode - 1, kernels::kNormNode}) {
      Buffer x = Buffer::random({n}, dtype);
      for (int64_t i = 0; i < n; ++i) x.set(i, std::ldexp(x.get(i), int(i * 37 % 60) - 30));  // or no sum is rounded
      Buffer blocks = powers_of(x, 2, kernels::kNormBlock), whole = powers_of(x, 2, kernels::kNormNode);
      std::vector<double> values;
      for (int64_t i = 0; i < blocks.in().numel(); ++i) values.push_back(blocks.get(i));
      EXPECT_EQ(whole.get(0), reference::tree_of(values.data(), int(values.size()))) << n << " of " << dtype;
    }
}

TEST(NormPowers, WhatIsNotANumberWins) {
  Context context;
  double nan = NAN;
  for (DType dtype : kFloats)
    for (int64_t width : {kernels::kNormBlock, kernels::kNormNode})
      for (double p : {2.0, double(INFINITY)}) {
        Buffer x = Buffer::of({3}, dtype, {1, nan, 2});
        EXPECT_TRUE(std::isnan(powers_of(x, p, width).get(0))) << dtype;
      }
}

// What the host would compute, a kernel gives to the update, with the same bits.
TEST(Optimizers, AScaleInTheDevicesMemoryIsAsGoodAsTheHosts) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64}) {
    Buffer p = Buffer::random({70}, dtype), mean = Buffer::random({70}, dtype, -1, 1, 4),
           square = Buffer::random({70}, dtype, 0, 1, 5), g = Buffer::random({70}, dtype, -1, 1, 3);
    Buffer scale = Buffer::of({1}, DType::f64, {0.3}), q = p, mean_too = mean, square_too = square;
    kernels::AdamArgs args{1e-2, 0.9, 0.999, 1e-8, 0.1, true, 0.2, 0.3, 0.3};
    auto kernel = kernel_of(kernels::adam, dtype);
    kernel(1, kernels::one_range(p.out(), {mean.out(), square.out()}, {}, g.in(), args), {});
    args.grad_scale = 1;
    kernel(1, kernels::one_range(q.out(), {mean_too.out(), square_too.out()}, {}, g.in(), args), scale.in());
    EXPECT_TRUE(p == q && mean == mean_too && square == square_too) << dtype;
  }
}

// A step that is run again reads there what is another number in each step; what travels with the call is old.
TEST(Optimizers, NumbersInTheDevicesMemoryTakeThePlaceOfThoseOfTheCall) {
  Context context;
  auto numbers_of = [](const auto& args) {
    std::vector<double> numbers(size_t(args.kNumbers));
    args.write(numbers.data());
    return Buffer::of({args.kNumbers}, DType::f64, numbers);
  };
  for (DType dtype : {DType::f32, DType::f64}) {
    Buffer p = Buffer::random({70}, dtype), mean = Buffer::random({70}, dtype, -1, 1, 4),
           square = Buffer::random({70}, dtype, 0, 1, 5), g = Buffer::random({70}, dtype, -1, 1, 3);
    kernels::AdamArgs now{1e-2, 0.9, 0.999, 1e-8, 0.1, true, 0.2, 0.3}, old = now;
    old.lr = 7, old.bias_correction1 = old.bias_correction2 = 1;
    kernels::SgdArgs first{0.1, 0.9, 0, 0.01, false, true}, later = first;
    later.lr = 3, later.first_step = false;
    auto updated = [&](auto& slot, const auto& args, const Buffer& numbers) {
      std::vector<Buffer> all{p, mean, square};
      auto ranges = kernels::one_range(all[0].out(), {all[1].out(), all[2].out()}, {}, g.in(), args);
      auto range = std::make_shared<std::vector<kernels::UpdateRange<std::decay_t<decltype(args)>>>>(*ranges);
      range->front().numbers = numbers.in();
      kernel_of(slot, dtype)(1, range, {});
      return all;
    };
    EXPECT_TRUE(updated(kernels::adam, old, numbers_of(now)) == updated(kernels::adam, now, Buffer())) << dtype;
    EXPECT_TRUE(updated(kernels::sgd, later, numbers_of(first)) == updated(kernels::sgd, first, Buffer())) << dtype;
  }
}

// What an update in f32 would give, as kernels::Rounding rounds element i of a range.
uint16_t rounded_by_chance(float value, const kernels::Rounding& rounding, int64_t i) {
  auto bits = std::bit_cast<uint32_t>(value);
  auto place = uint64_t(rounding.begin + i);
  uint32_t word = philox(rounding.seed, 0, place / 4)[place % 4];
  return std::isnan(value) ? uint16_t((bits >> 16) | 0x40u) : uint16_t((bits + (word >> 16)) >> 16);
}

// One range of parameters of bf16: numbers, gradients, and two states of f32.
struct NarrowUpdate {
  Buffer p, g, first, second;
  explicit NarrowUpdate(int64_t n)
      : p(Buffer::random({n}, DType::bf16)),
        g(Buffer::random({n}, DType::bf16, -1, 1, 3)),
        first(Buffer::random({n}, DType::f32, -1, 1, 4)),
        second(Buffer::random({n}, DType::f32, 0, 1, 5)) {}
  // Elements [begin, end).
  template <class Args>
  void run(Slot<kernels::UpdateRanges<Args>, View>& slot, Args args, int threads, int64_t begin, int64_t end,
           View numbers = {}) {
    auto part = [&](auto view) {
      using Byte = std::conditional_t<std::is_same_v<decltype(view), View>, const char, char>;
      view.data = static_cast<Byte*>(view.data) + size_t(begin) * size_of(view.dtype);
      view.shape = {end - begin};
      return view;
    };
    args.rounding.begin += begin;
    auto range = std::make_shared<std::vector<kernels::UpdateRange<Args>>>(
        1, kernels::UpdateRange<Args>{
               part(p.out()), {part(first.out()), part(second.out())}, {}, part(g.in()), args, numbers});
    kernel_of(slot, p.dtype())(threads, range, {});
  }
  // The same numbers in f32.
  NarrowUpdate wide() const {
    NarrowUpdate result = *this;
    for (Buffer* each : {&result.p, &result.g}) {
      Buffer converted(each->shape(), DType::f32);
      for (int64_t i = 0; i < each->numel(); ++i) converted.set(i, each->get(i));
      *each = converted;
    }
    return result;
  }
  bool operator==(const NarrowUpdate&) const = default;
};

template <class Args>
void expect_rounded_by_chance(Slot<kernels::UpdateRanges<Args>, View>& slot, Args args, int64_t n, int64_t begin) {
  args.rounding = {0x123456789abcdefu, begin};
  NarrowUpdate narrow(n), wide = narrow.wide(), before = narrow;
  narrow.run(slot, args, 1, 0, n);
  wide.run(slot, args, 1, 0, n);
  EXPECT_TRUE(narrow.first == wide.first && narrow.second == wide.second) << "the state is that of f32";
  for (int64_t i = 0; i < n; ++i)
    ASSERT_EQ(narrow.p.in().as<uint16_t>()[i], rounded_by_chance(wide.p.in().as<float>()[i], args.rounding, i))
        << slot.name() << ' ' << i << " of " << n << " from " << begin;
  for (int threads : {2, 3}) {
    NarrowUpdate other = before;
    other.run(slot, args, threads, 0, n);
    EXPECT_TRUE(other == narrow) << threads << " threads";
  }
  for (int64_t cut = 0; cut <= n; cut += n > 100 ? 23333 : 1) {
    NarrowUpdate parts = before;
    parts.run(slot, args, 2, 0, cut);
    parts.run(slot, args, 2, cut, n);
    ASSERT_TRUE(parts == narrow) << slot.name() << " cut at " << cut << " of " << n << " from " << begin;
  }
}

TEST(Optimizers, ParametersOfBf16AreUpdatedInF32AndRoundedByChanceWhereverTheyAreCut) {
  Context context;
  for (int64_t n : {0, 1, 5, 67, 70001})
    for (int64_t begin : {0, 3, 64}) {
      expect_rounded_by_chance(kernels::sgd, kernels::SgdArgs{0.1, 0.9, 0, 0.01, true, false, 0.5}, n, begin);
      expect_rounded_by_chance(kernels::adam, kernels::AdamArgs{1e-2, 0.9, 0.999, 1e-8, 0.1, true, 0.2, 0.3, 0.5}, n,
                               begin);
    }
}

TEST(Optimizers, TheSeedOfRoundingMayLieInTheDevicesMemory) {
  Context context;
  auto expect = [](auto& slot, auto args) {
    args.rounding.seed = 0xfedcba9876543210u;
    std::vector<double> numbers(size_t(args.kNumbers));
    args.write(numbers.data());
    Buffer now = Buffer::of({args.kNumbers}, DType::f64, numbers);
    NarrowUpdate plain(70), again = plain, other = plain;
    plain.run(slot, args, 1, 0, 70);
    args.rounding.seed = 7;
    again.run(slot, args, 1, 0, 70, now.in());
    other.run(slot, args, 1, 0, 70);
    EXPECT_TRUE(again == plain) << slot.name();
    EXPECT_FALSE(other == plain) << slot.name();
  };
  expect(kernels::sgd, kernels::SgdArgs{0.1, 0.9, 0, 0.01, false, false});
  expect(kernels::adam, kernels::AdamArgs{1e-2, 0.9, 0.999, 1e-8, 0.1, true, 0.2, 0.3});
}

// p - lr · g with lr 1 and no decay.
TEST(Optimizers, RoundingByChanceKeepsWhatBf16HasAndNotANumberAndOverflows) {
  Context context;
  const double most = (2 - 0x1p-7) * 0x1p127, nan = std::nan("");
  auto updated = [](double p, double g) {
    Buffer values({400}, DType::bf16), grads({400}, DType::bf16);
    for (int64_t i = 0; i < 400; ++i) values.set(i, p), grads.set(i, g);
    kernels::SgdArgs args{
        .lr = 1, .momentum = 0, .dampening = 0, .weight_decay = 0, .nesterov = false, .first_step = false};
    args.rounding.seed = 5;
    kernel_of(kernels::sgd, DType::bf16)(1, kernels::one_range(values.out(), {}, {}, grads.in(), args), {});
    std::vector<double> found = values.values();
    return std::set<double>(found.begin(), found.end());
  };
  EXPECT_EQ(updated(1, 0), std::set<double>{1});
  EXPECT_EQ(updated(-0x1p-120, 0), std::set<double>{-0x1p-120});
  EXPECT_EQ(updated(3, 1), std::set<double>{2});
  EXPECT_EQ(updated(most, -most), std::set<double>{INFINITY});
  EXPECT_EQ(updated(-most, most), std::set<double>{-INFINITY});
  EXPECT_EQ(updated(1, -0x1p-8), (std::set<double>{1, 1 + 0x1p-7})) << "half of the last place";
  EXPECT_EQ(updated(-1, 0x1p-8), (std::set<double>{-1 - 0x1p-7, -1}));
  EXPECT_EQ(updated(most, -0x1p119), (std::set<double>{most, INFINITY}));
  for (double value : updated(nan, 0)) EXPECT_TRUE(std::isnan(value));
  for (double value : updated(1, nan)) EXPECT_TRUE(std::isnan(value));
}

// As a GPU makes them: to which nothing can be added without making a number of it.
TEST(Optimizers, RoundingByChanceKeepsANotANumberOfWhichAllBitsAreSet) {
  Context context;
  Buffer values({400}, DType::bf16), grads({400}, DType::bf16), state({400}, DType::f32);
  std::fill_n(state.out().as<uint32_t>(), 400, 0x7fffffffu);
  kernels::SgdArgs args{
      .lr = 1, .momentum = 0.5, .dampening = 0, .weight_decay = 0, .nesterov = false, .first_step = false};
  args.rounding.seed = 5;
  kernel_of(kernels::sgd, DType::bf16)(1, kernels::one_range(values.out(), {state.out()}, {}, grads.in(), args), {});
  for (double value : values.values()) EXPECT_TRUE(std::isnan(value));
}

// Ranges of all lengths, each with its own rate and decay, some of which begin where elements do not move together.
TEST(Optimizers, RangesOfOneCallHaveTheBitsOfCallsOfTheirOwn) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64})
    for (DType narrow : {dtype, DType::bf16}) {  // dtype: no copies
      std::vector<std::array<Buffer, 5>> together, alone;
      for (size_t i = 0; i < kernels::kUpdatesTogether; ++i) {
        int64_t n = std::array{0, 1, 5, 300, 2100}[i % 5] + int64_t(i);
        auto random = [&](uint64_t seed, double low) { return Buffer::random({n}, dtype, low, 1, seed + 7 * i); };
        together.push_back({random(1, -1), random(2, -1), random(3, 0), random(4, -1), Buffer({n}, DType::bf16)});
      }
      alone = together;
      auto range_of = [&](std::array<Buffer, 5>& of, double i) {
        auto& [p, mean, square, g, copy] = of;
        kernels::AdamArgs args{1e-2 * (i + 1), 0.9, 0.999, 1e-8, i / 50, i < 14, 1 / (i + 2), 1 / (i + 3), 0.5};
        return kernels::one_range(p.out(), {mean.out(), square.out()}, narrow == dtype ? OutView{} : copy.out(), g.in(),
                                  args);
      };
      auto all = std::make_shared<std::vector<kernels::UpdateRange<kernels::AdamArgs>>>();
      auto kernel = kernel_of(kernels::adam, dtype);
      for (size_t i = 0; i < together.size(); ++i) {
        all->push_back(range_of(together[i], double(i))->front());
        kernel(2, range_of(alone[i], double(i)), {});
      }
      kernel(2, all, {});
      for (size_t i = 0; i < together.size(); ++i) EXPECT_TRUE(together[i] == alone[i]) << dtype << ' ' << i;
    }
}

TEST(JoinValues, ALevelNeedsTheOneBefore) {
  Context context;
  auto ints = [](const std::vector<double>& values, const Shape& shape) {
    return Buffer::of(shape, DType::i32, values);
  };
  Buffer joins = ints({4, 0, 1, 5, 2, 3, 6, 4, 5, 7, 6, -1, 8, -1, -1}, {5, 3}), levels = ints({2, 3, 5}, {3});
  auto joined = [&](double p, double first) {
    Buffer values = Buffer::of({9}, DType::f64, {first, 1, 2, 4, NAN, NAN, NAN, NAN, NAN});
    kernel_of(kernels::join_values, DType::f64)(1, values.out(), joins.in(), levels.in(), p);
    std::vector<double> made;
    for (int i = 4; i < 9; ++i) made.push_back(values.get(i));
    return made;
  };
  EXPECT_EQ(joined(2, 8), (std::vector<double>{9, 6, 15, 15, 0}));
  EXPECT_EQ(joined(INFINITY, 8), (std::vector<double>{8, 4, 8, 8, 0}));
  for (double p : {2.0, double(INFINITY)}) EXPECT_TRUE(std::isnan(joined(p, NAN)[3])) << p;
}

// As many as a thread block has, and more.
TEST(JoinValues, ALevelMayBeLargerThanAnyBlock) {
  Context context;
  const int pairs = 2500;
  std::vector<double> rows, given(3 * pairs + 1, NAN);
  for (int i = 0; i < pairs; ++i) {
    rows.insert(rows.end(), {double(2 * pairs + i), double(2 * i), double(2 * i + 1)});
    given[size_t(2 * i)] = i, given[size_t(2 * i + 1)] = 0.5;
  }
  rows.insert(rows.end(), {double(3 * pairs), double(2 * pairs + 1023), double(3 * pairs - 1)});
  Buffer values = Buffer::of({3 * pairs + 1}, DType::f64, given), joins = Buffer::of({pairs + 1, 3}, DType::i32, rows),
         levels = Buffer::of({2}, DType::i32, {pairs, pairs + 1.0});
  kernel_of(kernels::join_values, DType::f64)(1, values.out(), joins.in(), levels.in(), 2);
  for (int i = 0; i < pairs; ++i) ASSERT_EQ(values.get(2 * pairs + i), i + 0.5);
  EXPECT_EQ(values.get(3 * pairs), 1023.5 + 2499.5);
}

TEST(ClipScale, BoundsTheNormAndLetsPassWhatIsNotFinite) {
  Context context;
  auto scale = [](double power, double most) {
    Buffer from = Buffer::of({1}, DType::f64, {power}), to({1}, DType::f64);
    kernel_of(kernels::clip_scale, DType::f64)(1, to.out(), from.in(), most);
    return to.get(0);
  };
  EXPECT_EQ(scale(16, 2), 2 / (4 + 1e-6));
  EXPECT_EQ(scale(16, 5), 1);
  EXPECT_EQ(scale(0, 1e-7), 1e-7 / 1e-6);
  EXPECT_EQ(scale(2, 1), 1 / (std::sqrt(2.0) + 1e-6));
  for (double power : {double(INFINITY), double(NAN)}) EXPECT_EQ(scale(power, 1), 1);
}

TEST(TreeSum, AddsByNeighboursWhateverTheNumberOfParts) {
  for (DType dtype : kAll)
    for (int count = 1; count <= 9; ++count)
      for (int64_t n : {0, 1, 2047, 2049}) {
        std::vector<Buffer> parts;
        std::vector<const void*> pointers;
        for (int k = 0; k < count; ++k) parts.push_back(Buffer::random({n}, dtype, 0, 9, uint32_t(20 + k)));
        for (const Buffer& part : parts) pointers.push_back(part.in().data);
        kernels::TreeSumArgs args{pointers.data(), count, dtype};
        expect_like_reference(SG_BOTH(tree_sum), dtype, one({n}, dtype), {0}, args);
      }
}

// The smallest stack that a thread may have: the thread-local memory of all libraries lies in it, also what the
// simulator's kernels have of it, once they are loaded.
size_t smallest_stack() {
  for (size_t bytes = 16 << 10;; bytes += 16 << 10) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    pthread_t thread;
    auto nothing = [](void*) -> void* { return nullptr; };
    bool began = pthread_create(&thread, &attributes, nothing, nullptr) == 0;
    pthread_attr_destroy(&attributes);
    if (!began) continue;
    pthread_join(thread, nullptr);
    return bytes;
  }
}

// 48 KiB of stack beside that, and below it memory that nobody may write: what a small `ulimit -s` leaves to a host
// program's threads.
class SmallStack {
 public:
  template <class Work> void run(Work work) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, memory_.data() + kBelow, memory_.size() - kBelow);
    pthread_t thread;
    auto call = [](void* argument) -> void* {
      (*static_cast<Work*>(argument))();
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, call, &work), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }
  bool written_below() const {
    return std::any_of(memory_.begin(), memory_.begin() + kBelow, [](char byte) { return byte != 'x'; });
  }

 private:
  static constexpr size_t kBelow = 1 << 20;
  std::vector<char> memory_ = std::vector<char>(kBelow + smallest_stack() + (48 << 10), 'x');
};

TEST(CpuTreeSum, NeedsLittleStack) {
  SmallStack stack;
  float sum = 0;
  stack.run([&sum] {
    std::vector<float> parts(5 * 3000, 1.5f), y(3000);
    const void* pointers[] = {&parts[0], &parts[3000], &parts[6000], &parts[9000], &parts[12000]};
    auto kernel = kernels::tree_sum.find(DeviceKind::cpu, DType::f32);
    kernel(Launch{1}, {y.data(), {3000}, DType::f32, 0, true}, {pointers, 5, DType::f32});
    sum = y[2999];
  });
  EXPECT_EQ(sum, 7.5f);
  EXPECT_FALSE(stack.written_below());
}

TEST(TreeSum, TheOrderIsTheTreesAndNotLeftToRight) {
  // (1e8 + 1) + (-1e8 + 1) = 1e8 - 1e8 = 0 in f32; from left to right it would be 1.
  Context context;
  Buffer parts = Buffer::of({4}, DType::f32, {1e8, 1, -1e8, 1}), sum = Buffer::of({1}, DType::f32, {-1});
  const float* part = parts.in().as<float>();
  const void* pointers[] = {part, part + 1, part + 2, part + 3};
  kernel_of(kernels::tree_sum, DType::f32)(1, sum.out(), {pointers, 4, DType::f32});
  EXPECT_EQ(sum.get(0), 0);
}

TEST(TreeSum, PartsAndSumMayBeOfDifferentFloatingDtypes) {
  for (DType from : kFloats)
    for (DType to : kFloats) {
      Buffer a = Buffer::random({70}, from, 0, 1, 1), b = Buffer::random({70}, from, 0, 1, 2);
      const void* pointers[] = {a.in().data, b.in().data, a.in().data};
      expect_like_reference(SG_BOTH(tree_sum), to, one({70}, to), {0}, kernels::TreeSumArgs{pointers, 3, from});
    }
}

TEST(TreeSum, ThePartsMayContainTheDestination) {
  Context context;
  Buffer a = Buffer::random({5000}, DType::f32, 0, 1, 1), b = Buffer::random({5000}, DType::f32, 0, 1, 2), y = b;
  const void* pointers[] = {a.in().data, y.in().data};
  kernel_of(kernels::tree_sum, DType::f32)(1, y.out(), {pointers, 2, DType::f32});
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(float(y.get(i)), float(a.get(i)) + float(b.get(i)));
}

}  // namespace
}  // namespace shardgrad::test
