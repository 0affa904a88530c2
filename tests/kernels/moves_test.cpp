#include <shardgrad/certify/reference/elementwise.h>
#include <shardgrad/certify/reference/moves.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "no error";
}

TEST(Moves, PermuteReordersDimensionsOfEveryDtype) {
  struct Case {
    Shape x;
    kernels::Permutation p;
  };
  const Case cases[] = {
      {{}, {}},
      {{7}, {0}},
      {{5, 0}, {1, 0}},
      {{33, 65}, {1, 0}},
      {{3, 1, 5}, {2, 1, 0}},
      {{4, 5, 6}, {1, 0, 2}},
      {{4, 5, 6}, {0, 2, 1}},
      {{4, 5, 6}, {2, 0, 1}},
      {{2, 3, 4, 5}, {0, 2, 1, 3}},
      {{2, 3, 4, 5}, {3, 1, 2, 0}},
      {{2, 3, 1, 2, 3, 2}, {5, 0, 4, 1, 2, 3}},
  };
  for (DType dtype : kAll)
    for (const Case& c : cases) {
      std::array<int64_t, kMaxDims> extents{};
      for (int d = 0; d < c.x.ndim(); ++d) extents[size_t(d)] = c.x[c.p[size_t(d)]];
      Shape y(std::span<const int64_t>(extents.data(), size_t(c.x.ndim())));
      expect_like_reference(SG_BOTH(permute), dtype, one(y, dtype), {1}, Buffer::random(c.x, dtype, 0, 200), c.p);
    }
  Buffer large = Buffer::random({300, 401}, DType::f32);
  expect_like_reference(SG_BOTH(permute), DType::f32, one({401, 300}, DType::f32), {1}, large,
                        kernels::Permutation{1, 0});
}

TEST(Moves, NarrowPasteAndTheirBackwardServeEveryDimension) {
  const Shape whole{4, 5, 6};
  for (DType dtype : kAll)
    for (int dim = 0; dim < 3; ++dim)
      for (int64_t length : {0, 1, 3, 4})
        for (int64_t start : {0, 1}) {
          if (start + length > whole[dim]) continue;
          Shape part = whole.with(dim, length);
          Buffer x = Buffer::random(whole, dtype, 0, 200), piece = Buffer::random(part, dtype, 0, 200);
          expect_like_reference(SG_BOTH(narrow), dtype, one(part, dtype), {1}, x, dim, start);
          expect_like_reference(SG_BOTH(narrow_backward), dtype, one(whole, dtype), {1}, piece, dim, start);
          expect_like_reference(SG_BOTH(paste), dtype, one(whole, dtype), {1}, piece, dim, start);
        }
}

TEST(Moves, IndexSelectAndIndexAddServeEveryDimension) {
  const Shape x{4, 5, 6};
  for (DType dtype : kAll)
    for (int dim = 0; dim < 3; ++dim)
      for (const std::vector<int64_t>& values : {std::vector<int64_t>{}, {3}, {1, 0, 1, 3, 1, 2, 1}}) {
        Buffer index = Buffer::labels(values);
        Shape rows = x.with(dim, index.numel());
        expect_like_reference(SG_BOTH(index_select), dtype, one(rows, dtype), {1}, Buffer::random(x, dtype, 0, 200),
                              index, dim);
        expect_like_reference(SG_BOTH(index_add), dtype, one(x, dtype), {3}, Buffer::random(rows, dtype, 0, 30), index,
                              dim);
      }
}

TEST(Moves, GatherAndScatterAddFollowTorch) {
  struct Case {
    Shape x, index;
    int dim;
  };
  const Case cases[] = {{{7}, {4}, 0},
                        {{7}, {0}, 0},
                        {{4, 5}, {4, 3}, 1},
                        {{4, 5}, {6, 5}, 0},
                        {{4, 5}, {2, 9}, 1},
                        {{3, 4, 5}, {2, 7, 4}, 1},
                        {{3, 4, 5}, {8, 3, 5}, 0},
                        {{3, 4, 5}, {3, 2, 9}, 2},
                        {{9}, {100}, 0},
                        {{4, 5}, {3, 40}, 1},
                        {{3, 4, 5}, {2, 3, 16}, 2},
                        {{3, 4, 5}, {2, 33, 1}, 1}};
  for (DType dtype : kAll)
    for (const Case& c : cases) {
      Buffer index = Buffer::random(c.index, DType::i64, 0, double(c.x[c.dim] - 1), 8);
      expect_like_reference(SG_BOTH(gather), dtype, one(c.index, dtype), {1}, Buffer::random(c.x, dtype, 0, 200), index,
                            c.dim);
      expect_like_reference(SG_BOTH(scatter_add), dtype, one(c.x, dtype), {4}, Buffer::random(c.index, dtype, 0, 30),
                            index, c.dim);
    }
}

// Along the last dimension, of lines of less than half a warp, of more, and of which all go to one place. The elements
// are of such different size that another order would show.
TEST(Moves, ScatterAddAddsInTheOrderOfTheIndex) {
  Context context;
  struct Case {
    int64_t rows, count, extent;
  };
  const Case cases[] = {{3, 15, 4}, {3, 16, 4}, {9, 33, 1}, {2, 1100, 40}, {1, 100000, 5000}};
  for (auto [rows, count, extent] : cases)
    for (DType dtype : {DType::f32, DType::bf16})
      for (float beta : {0.0f, 1.0f}) {
        Buffer index = Buffer::random({rows, count}, DType::i64, 0, double(extent - 1), 8);
        Buffer src = Buffer::random({rows, count}, dtype, -1, 1), y = Buffer::random({rows, extent}, dtype, -1, 1);
        for (int64_t i = 0; i < src.numel(); ++i) src.set(i, std::ldexp(src.get(i), int(i * 7 % 23)));
        std::vector<float> sums(size_t(y.numel()));
        for (int64_t j = 0; j < y.numel(); ++j) sums[size_t(j)] = beta * float(y.get(j));
        for (int64_t i = 0; i < src.numel(); ++i)
          sums[size_t(i / count * extent + reference::get_integer(index.in(), i))] += float(src.get(i));
        if (beta == 0) y.poison();
        kernel_of(kernels::scatter_add, dtype)(1, y.out(beta), src.in(), index.in(), 1);
        Buffer expected = Buffer::of(y.shape(), dtype, {sums.begin(), sums.end()});
        for (int64_t i = 0; i < y.numel(); ++i)
          ASSERT_EQ(y.get(i), expected.get(i)) << dtype << ' ' << count << " to " << extent << ", beta " << beta;
      }
}

// Additions to rows along dimension 0 may meet anywhere, and one thread makes them; along dimension 1 several do.
TEST(Moves, LargeIndexedSumsDoNotDependOnThreads) {
  Context context;
  Buffer index = Buffer::random({700}, DType::i64, 0, 49, 8), wide = Buffer::random({700, 300}, DType::i64, 0, 49, 9);
  for (DType dtype : {DType::f32, DType::bf16}) {
    Buffer rows = Buffer::random({700, 300}, dtype);
    auto run = [&](auto& slot, Shape table, const Buffer& at, int dim, int threads) {
      Buffer y(table, dtype);
      kernel_of(slot, dtype)(threads, y.poison().out(), rows.in(), at.in(), dim);
      return y;
    };
    auto expect_same = [&](auto& slot, Shape table, const Buffer& at, int dim) {
      EXPECT_TRUE(run(slot, table, at, dim, 1) == run(slot, table, at, dim, 4)) << slot.name() << dtype << dim;
    };
    expect_same(kernels::index_add, {50, 300}, index, 0);
    expect_same(kernels::scatter_add, {50, 300}, wide, 0);
    expect_same(kernels::scatter_add, {700, 50}, wide, 1);
  }
}

TEST(Moves, SelectionsOfSingleElementsAreCutAnywhere) {
  Buffer index = Buffer::random({50001}, DType::i64, 0, 69);
  expect_like_reference(SG_BOTH(index_select), DType::f32, one({3, 50001}, DType::f32), {1},
                        Buffer::random({3, 70}, DType::f32), index, 1);
}

TEST(Refusals, AnIndexOutOfRangeIsRefusedNamingPositionAndValue) {
  Context context;
  Buffer x = Buffer::random({4, 3}, DType::f32), y({3, 3}, DType::f32);
  Buffer index = Buffer::labels({0, 3, 4}), negative = Buffer::labels({0, -1, 2});
  auto run = [&](auto& slot, const Buffer& at) { kernel_of(slot, DType::f32)(1, y.out(), x.in(), at.in(), 0); };
  EXPECT_EQ(error_of([&] { run(kernels::index_select, index); }), "index_select: index 2 is 4, outside [0, 4)");
  EXPECT_EQ(error_of([&] { run(kernels::index_select, negative); }), "index_select: index 1 is -1, outside [0, 4)");
  EXPECT_EQ(error_of([&] { run(kernels::index_add, index); }), "index_add: index 1 is 3, outside [0, 3)");
  EXPECT_EQ(error_of([&] { run(kernels::index_add, negative); }), "index_add: index 1 is -1, outside [0, 3)");
  Buffer matrix = Buffer::of({1, 3}, DType::i64, {0, 4, 1});
  EXPECT_EQ(error_of([&] { run(kernels::gather, matrix); }), "gather: index 1 is 4, outside [0, 4)");
  EXPECT_EQ(error_of([&] { run(kernels::scatter_add, matrix); }), "scatter_add: index 1 is 4, outside [0, 3)");
  EXPECT_EQ(error_of([&] { run(kernels::scatter, matrix); }), "scatter: index 1 is 4, outside [0, 3)");
  Buffer row({2, 20}, DType::i64), src({2, 20}, DType::f32), sums({2, 3}, DType::f32);
  row.set(37, 3);
  auto add_rows = [&] { kernel_of(kernels::scatter_add, DType::f32)(1, sums.out(), src.in(), row.in(), 1); };
  EXPECT_EQ(error_of(add_rows), "scatter_add: index 37 is 3, outside [0, 3)");
}

void expect_most_like_reference(const Buffer& x, Shape y, int dim, Tolerance tolerance) {
  for (bool least : {false, true})
    expect_like_reference(SG_BOTH(max_dim), x.dtype(), std::array{Buffer(y, x.dtype()), Buffer(y, DType::i64)},
                          tolerance, x, dim, least);
}

TEST(Moves, MaxAndMinFindTheFirstAlongEveryDimension) {
  for (DType dtype : kAll)
    for (int dim = 0; dim < 3; ++dim) {
      Buffer x = Buffer::random({4, 5, 6}, dtype, 0, is_floating(dtype) ? 200 : 3);
      std::vector<int64_t> kept;
      for (int d = 0; d < 3; ++d)
        if (d != dim) kept.push_back(x.shape()[d]);
      expect_most_like_reference(x, Shape{std::span<const int64_t>(kept)}, dim, {1});
    }
  Buffer row = Buffer::of({1, 5}, DType::f32, {3, 7, 7, NAN, 9}),
         ties = Buffer::of({1, 5}, DType::f32, {3, 7, 7, 1, 7}), low = Buffer::of({1, 5}, DType::f32, {8, 2, 7, 2, 9});
  for (const Buffer& x : {row, ties, low}) expect_most_like_reference(x, {1}, 1, {0});
}

// The first of all stands in the middle or at an end of what is compared at a time, again behind itself, or is no
// number.
TEST(Moves, MaxAndMinFindTheFirstOfMany) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (int64_t at : {0, 1, 15, 16, 1023, 1024, 1500, 2050, 2063})
      for (double first : {120.0, 0.0, double(is_floating(dtype) ? NAN : 119.0)}) {
        Buffer row = Buffer::random({1, 2064}, dtype, 1, 100);
        for (int64_t i : {at, (at + 2063) / 2, int64_t(2063)}) row.set(i, first);
        expect_most_like_reference(row, {1}, 1, {1});
        row = Buffer::random({300, 70}, dtype, 1, 100);
        row.set(70 * (at % 300) + 69, first), row.set(70 * 299 + 69, first);
        expect_most_like_reference(row, {70}, 0, {1});
      }
}

// Around the lengths at which rows have more threads on a GPU.
TEST(Moves, MaxAndMinOfRowsOfEveryLengthFindTheFirst) {
  for (DType dtype : kAll)
    for (int64_t cols : {31, 32, 33, 127, 128, 129, 1000, 2047, 2048, 2049, 4099}) {
      Buffer rows = Buffer::random({11, cols}, dtype, 1, 100);
      for (int64_t r = 0; r < 11; ++r)
        for (int64_t at : {r * cols / 11, r * cols / 11 + cols / 12})
          rows.set(r * cols + at, r % 3 == 2 && is_floating(dtype) ? NAN : r % 3 == 0 ? 120 : 0);
      expect_most_like_reference(rows, {11}, 1, {1});
    }
}

TEST(Moves, SumToReducesWhateverWasBroadcast) {
  struct Case {
    Shape x, y;
  };
  const Case cases[] = {
      {{}, {}},
      {{33}, {}},
      {{0}, {}},
      {{0, 3}, {3}},
      {{3, 0}, {3, 1}},
      {{33}, {33}},
      {{7, 33}, {33}},
      {{7, 33}, {7, 1}},
      {{7, 33}, {1, 1}},
      {{4099}, {}},
      {{2, 4099}, {2, 1}},
      {{700, 3}, {3}},
      {{3, 700, 2}, {3, 1, 2}},
      {{2, 3, 4, 5}, {3, 1, 5}},
      {{2, 3, 4, 5}, {2, 1, 4, 1}},
      {{2, 3, 4, 5}, {4, 1}},
      {{2, 3, 4, 5}, {2, 3, 1, 1}},
      {{3, 5, 49}, {5, 1}},
      {{400, 3, 37}, {3, 1}},
      {{2, 3, 9000}, {3, 1}},
      {{5, 6, 7, 43}, {6, 1, 43}},
      {{70, 2, 9, 3}, {2, 1, 3}},
  };
  for (DType dtype : kAll)
    for (const Case& c : cases)
      expect_like_reference(SG_BOTH(sum_to), dtype, one(c.y, is_floating(dtype) ? dtype : DType::i64), {6},
                            Buffer::random(c.x, dtype, 0.5, 2));
}

TEST(Moves, SumsOfIntegersAreWiderThanTheirElements) {
  struct Case {
    Shape x, y;
  };
  Context context;
  const Case cases[] = {{{1000}, {}}, {{90000}, {}}, {{3, 1000}, {3, 1}}, {{1000, 3}, {3}}, {{2, 1000, 3}, {2, 1, 3}},
                        {{5}, {5}}};
  for (DType dtype : {DType::u8, DType::i32})
    for (const Case& c : cases) {
      double each = dtype == DType::u8 ? 255 : 2e9;
      Buffer x(c.x, dtype), y(c.y, DType::i64);
      for (int64_t i = 0; i < x.numel(); ++i) x.set(i, each);
      kernel_of(kernels::sum_to, dtype)(1, y.poison().out(), x.in());
      double sum = each * double(x.numel() / y.numel());
      for (int64_t i = 0; i < y.numel(); ++i) EXPECT_EQ(y.get(i), sum) << dtype << ' ' << c.x << " to " << c.y;
    }
}

TEST(Moves, ColumnSumsOfManyRowsLoseNoMoreThanThoseOfFew) {
  Context context;
  Buffer x({1 << 19, 2}, DType::f32), sums({2}, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, 0.1);
  kernel_of(kernels::sum_to, DType::f32)(2, sums.poison().out(), x.in());
  for (int64_t i : {0, 1}) EXPECT_NEAR(sums.get(i) / (double(0.1f) * (1 << 19)), 1, 5e-6);
}

TEST(Moves, LargeSumsAreAccurateAndDoNotDependOnThreads) {
  Context context;
  for (const Shape& shape : {Shape{1}, Shape{513}, Shape{611, 1}}) {
    Buffer x = Buffer::random({611, 513}, DType::f32, 0, 1);
    auto run = [&](int threads) {
      Buffer y(shape, DType::f32);
      kernel_of(kernels::sum_to, DType::f32)(threads, y.poison().out(), x.in());
      return y;
    };
    Buffer single = run(1);
    for (int threads : {2, 3, 5}) EXPECT_TRUE(run(threads) == single) << shape;
    std::vector<double> exact(size_t(shape.numel()));
    for (int64_t i = 0; i < x.numel(); ++i) exact[size_t(reference::broadcast_index(x.shape(), shape, i))] += x.get(i);
    for (int64_t i = 0; i < shape.numel(); ++i) EXPECT_NEAR(single.get(i), exact[size_t(i)], 2e-7 * exact[size_t(i)]);
  }
}

// With dimensions kept in the middle, at both ends, few and many; in chunks of ranges, of parts of a range, of rows.
TEST(CpuSums, OfAnyPatternAreAccurateAndDoNotDependOnThreads) {
  struct Case {
    Shape x, y;
  };
  const Case cases[] = {{{37, 12, 513}, {12, 1}},  {{301, 2, 513}, {2, 1}},       {{3, 5, 20011}, {5, 1}},
                        {{300, 700, 2}, {700, 1}}, {{31, 5, 29, 43}, {5, 1, 43}}, {{9, 6, 11, 301}, {6, 1, 301}}};
  Context context;
  for (const auto& [from, to] : cases) {
    Buffer x = Buffer::random(from, DType::f32, 0, 1);
    auto run = [&, &to = to](int threads) {
      Buffer y(to, DType::f32);
      kernel_of(kernels::sum_to, DType::f32)(threads, y.poison().out(), x.in());
      return y;
    };
    Buffer single = run(1);
    for (int threads : {2, 3, 5}) EXPECT_TRUE(run(threads) == single) << from << " to " << to;
    std::vector<double> exact(size_t(to.numel()));
    for (int64_t i = 0; i < x.numel(); ++i) exact[size_t(reference::broadcast_index(from, to, i))] += x.get(i);
    double rounding = to[-1] == 1 ? 2e-7 : 1e-6;  // ranges add up in f64, rows in f32
    for (int64_t i = 0; i < to.numel(); ++i) EXPECT_NEAR(single.get(i), exact[size_t(i)], rounding * exact[size_t(i)]);
  }
}

}  // namespace
}  // namespace shardgrad::test
