#include <cmath>

#include <shardgrad/certify/reference/elementwise.h>
#include <shardgrad/certify/reference/rows.h>
#include <shardgrad/certify/reference/transformer.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

const Shape kMatrices[] = {{0, 5}, {1, 1}, {3, 2}, {5, 10}, {2, 16}, {4, 33}, {2, 3, 70}, {150, 19}, {270, 3}};

Shape rows_shape(const Shape& x) { return {x[-1] ? x.numel() / x[-1] : 0}; }
Shape columns_shape(const Shape& x) { return {x[-1]}; }

TEST(Rows, SoftmaxAndItsBackwardMatchTheReference) {
  for (DType dtype : kFloats)
    for (const Shape& shape : kMatrices)
      for (bool log : {false, true}) {
        Buffer x = Buffer::random(shape, dtype, -5, 5), dy = Buffer::random(shape, dtype, -1, 1, 3);
        expect_like_reference(SG_BOTH(softmax), dtype, one(shape, dtype), {6}, x, shape.ndim() - 1, log);
        Buffer y(shape, dtype);
        reference::softmax(y.out(), x.in(), shape.ndim() - 1, log);
        expect_like_reference(SG_BOTH(softmax_backward), dtype, one(shape, dtype), {24}, dy, y, shape.ndim() - 1, log);
      }
}

TEST(Rows, SoftmaxOfHugeOrMaskedLogitsStaysFinite) {
  Buffer x = Buffer::of({2, 3}, DType::f32, {1e30, 1e30, -1e30, -INFINITY, 5, -INFINITY});
  expect_like_reference(SG_BOTH(softmax), DType::f32, one({2, 3}, DType::f32), {2}, x, 1, false);
  Buffer columns = Buffer::of({3, 2}, DType::f32, {1e30, -INFINITY, 1e30, 5, -1e30, -INFINITY});
  expect_like_reference(SG_BOTH(softmax), DType::f32, one({3, 2}, DType::f32), {2}, columns, 0, false);
}

// Fewer columns than a vector has, vectors of them and a rest, more than go together; rows of several blocks.
TEST(Rows, SoftmaxAlongAnyDimensionAndItsBackwardMatchTheReference) {
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{5, 0}, Shape{3, 4, 2}, Shape{0, 5, 3}, Shape{2, 70, 19}, Shape{1, 9, 33},
                               Shape{3, 130, 71}, Shape{7, 1, 200}, Shape{270, 40, 3}})
      for (int dim = 0; dim < shape.ndim() - 1; ++dim)
        for (bool log : {false, true}) {
          SCOPED_TRACE(concat("dim ", dim, " of ", shape));
          Buffer x = Buffer::random(shape, dtype, -5, 5), dy = Buffer::random(shape, dtype, -1, 1, 3);
          expect_like_reference(SG_BOTH(softmax), dtype, one(shape, dtype), {6}, x, dim, log);
          Buffer y(shape, dtype);
          reference::softmax(y.out(), x.in(), dim, log);
          expect_like_reference(SG_BOTH(softmax_backward), dtype, one(shape, dtype), {24}, dy, y, dim, log);
        }
}

// A column with a NaN, or with an infinity, is NaN; those beside it are not.
TEST(Rows, SoftmaxOfColumnsKeepsSpecialValuesToTheirColumn) {
  for (DType dtype : kFloats)
    for (double special : {double(NAN), double(INFINITY), double(-INFINITY)}) {
      Buffer x = Buffer::random({70, 40}, dtype, -5, 5);
      x.set(66 * 40 + 7, special), x.set(39, special);
      for (bool log : {false, true})
        expect_like_reference(SG_BOTH(softmax), dtype, one(x.shape(), dtype), {6}, x, 0, log);
    }
}

TEST(Rows, LayerNormAndItsBackwardMatchTheReference) {
  for (DType dtype : kFloats)
    for (const Shape& shape : kMatrices)
      for (bool affine : {false, true}) {
        Buffer x = Buffer::random(shape, dtype, -1, 3), none, dy = Buffer::random(shape, dtype, -1, 1, 3);
        Buffer weight = affine ? Buffer::random(columns_shape(shape), dtype, 0.5, 2, 4) : none;
        Buffer bias = affine ? Buffer::random(columns_shape(shape), dtype, -1, 1, 5) : none;
        Buffer mean(rows_shape(shape), statistic(dtype)), rstd = mean, y(shape, dtype);
        if (shape[-1] > 1)  // one column has no variance: 1/sqrt(eps) magnifies every rounding
          expect_like_reference(SG_BOTH(layer_norm), dtype, std::array<Buffer, 3>{y, mean, rstd}, {24}, x, weight, bias,
                                1e-5);
        reference::layer_norm(y.out(), mean.out(), rstd.out(), x.in(), weight.in(), bias.in(), 1e-1);
        Buffer dweight(columns_shape(shape), dtype), dbias = dweight;
        expect_like_reference(SG_BOTH(layer_norm_backward), dtype, std::array<Buffer, 3>{y, dweight, dbias}, {24}, dy,
                              x, weight, mean, rstd);
      }
}

TEST(Rows, RmsNormAndItsBackwardMatchTheReference) {
  for (DType dtype : kFloats)
    for (const Shape& shape : kMatrices)
      for (bool scaled : {false, true}) {
        Buffer x = Buffer::random(shape, dtype, -1, 3), none, dy = Buffer::random(shape, dtype, -1, 1, 3);
        Buffer weight = scaled ? Buffer::random(columns_shape(shape), dtype, 0.5, 2, 4) : none;
        Buffer rstd(rows_shape(shape), statistic(dtype)), y(shape, dtype), dweight(columns_shape(shape), dtype);
        expect_like_reference(SG_BOTH(rms_norm), dtype, std::array<Buffer, 2>{y, rstd}, {12}, x, weight, 1e-5);
        reference::rms_norm(y.out(), rstd.out(), x.in(), weight.in(), 1e-1);
        if (shape[-1] > 1)  // of one column nearly all cancels
          expect_like_reference(SG_BOTH(rms_norm_backward), dtype, std::array<Buffer, 2>{y, dweight}, {24}, dy, x,
                                weight, rstd);
      }
}

void expect_batch_norm_like_reference(const Shape& shape, DType dtype, bool affine) {
  SCOPED_TRACE(shape);
  Shape channels{shape[1]};
  Buffer x = Buffer::random(shape, dtype, -1, 3), none, dy = Buffer::random(shape, dtype, -1, 1, 3);
  Buffer weight = affine ? Buffer::random(channels, dtype, 0.5, 2, 4) : none;
  Buffer bias = affine ? Buffer::random(channels, dtype, -1, 1, 5) : none;
  Buffer mean(channels, statistic(dtype)), rstd = mean, y(shape, dtype);
  expect_like_reference(SG_BOTH(batch_norm), dtype, std::array<Buffer, 3>{y, mean, rstd}, {24}, x, weight, bias, 1e-2);
  reference::batch_norm(y.out(), mean.out(), rstd.out(), x.in(), weight.in(), bias.in(), 1e-2);
  expect_like_reference(SG_BOTH(batch_norm_apply), dtype, one(shape, dtype), {8}, x, mean, rstd, weight, bias);
  Buffer dweight(channels, dtype), dbias = dweight;
  expect_like_reference(SG_BOTH(batch_norm_backward), dtype, std::array<Buffer, 3>{y, dweight, dbias}, {60}, dy, x,
                        weight, mean, rstd);
}

TEST(Rows, BatchNormAndItsBackwardMatchTheReference) {
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{3, 2}, Shape{5, 10}, Shape{40, 33}, Shape{300, 19}})
      for (bool affine : {false, true}) expect_batch_norm_like_reference(shape, dtype, affine);
}

// Runs of a few elements, of a vector and a rest, of more than are added up at once; channels with one element a
// sample.
TEST(Rows, BatchNormOfImagesAndItsBackwardMatchTheReference) {
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{3, 2, 5, 1}, Shape{2, 3, 33}, Shape{40, 3, 1, 1}, Shape{1, 2, 4, 4},
                               Shape{150, 2, 3, 19}, Shape{2, 2, 91, 93}})
      for (bool affine : {false, true}) expect_batch_norm_like_reference(shape, dtype, affine);
}

// Groups of one channel and of several; channels of one place, of a vector and a rest, of more places than are added up
// at once; many samples.
TEST(Rows, GroupNormAndItsBackwardMatchTheReference) {
  struct Case {
    Shape x;
    int64_t groups;
  };
  const Case cases[] = {{{3, 8}, 2}, {{2, 4, 5}, 4}, {{2, 6, 3, 7}, 3}, {{300, 4, 3}, 2}, {{2, 2, 91, 93}, 2}};
  for (DType dtype : kFloats)
    for (const auto& [shape, groups] : cases)
      for (bool affine : {false, true}) {
        SCOPED_TRACE(shape);
        Buffer x = Buffer::random(shape, dtype, -1, 3), none, dy = Buffer::random(shape, dtype, -1, 1, 3);
        Buffer weight = affine ? Buffer::random({shape[1]}, dtype, 0.5, 2, 4) : none;
        Buffer bias = affine ? Buffer::random({shape[1]}, dtype, -1, 1, 5) : none;
        Buffer mean({shape[0], groups}, statistic(dtype)), rstd = mean, y(shape, dtype);
        expect_like_reference(SG_BOTH(group_norm), dtype, std::array<Buffer, 3>{y, mean, rstd}, {24}, x, weight, bias,
                              groups, 1e-2);
        reference::group_norm(y.out(), mean.out(), rstd.out(), x.in(), weight.in(), bias.in(), groups, 1e-2);
        Buffer dweight({shape[1]}, dtype), dbias = dweight;
        expect_like_reference(SG_BOTH(group_norm_backward), dtype, std::array<Buffer, 3>{y, dweight, dbias}, {60}, dy,
                              x, weight, mean, rstd, groups);
      }
}

TEST(Rows, SwigluAndItsBackwardMatchTheReference) {
  for (DType dtype : kFloats)
    for (const Shape& shape : kMatrices) {
      Shape whole = shape.with(-1, 2 * shape[-1]);
      Buffer x = Buffer::random(whole, dtype, -6, 6), dy = Buffer::random(shape, dtype, -1, 1, 3);
      expect_like_reference(SG_BOTH(swiglu), dtype, one(shape, dtype), {6}, x);
      expect_like_reference(SG_BOTH(swiglu_backward), dtype, one(whole, dtype), {8}, dy, x);
    }
}

TEST(Rows, RopeMatchesTheReferenceBothWaysAndInPlace) {
  struct Case {
    Shape x;
    int64_t heads, width, first;
    std::vector<int64_t> starts;
  };
  const Case cases[] = {{{1, 1, 6}, 2, 2, 0, {}},
                        {{2, 3, 16}, 3, 4, 0, {0, 2}},
                        {{2, 5, 136}, 3, 34, 7, {12, 1}},
                        {{3, 2, 200}, 1, 96, 2, {0, 1, 4}},
                        {{0, 2, 6}, 2, 2, 0, {}}};
  for (DType dtype : kFloats)
    for (const Case& c : cases)
      for (bool inverse : {false, true}) {
        Buffer x = Buffer::random(c.x, dtype),
               table = Buffer::random({c.x[1] + c.first, c.width}, statistic(dtype), -1);
        Buffer starts = c.starts.empty() ? Buffer() : Buffer::labels(c.starts), rotated(c.x, dtype), place = x;
        kernels::RopeArgs args{c.heads, c.first, inverse};
        expect_like_reference(SG_BOTH(rope), dtype, one(c.x, dtype), {12}, x, table, starts, args);
        Context context;
        auto kernel = kernel_of(kernels::rope, dtype);
        kernel(1, rotated.out(), x.in(), table.in(), starts.in(), args);
        kernel(1, place.out(), place.in(), table.in(), starts.in(), args);
        for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(place.get(i), rotated.get(i)) << dtype << ' ' << c.x;
      }
}

TEST(Refusals, AStartOutsideOfTheRowsIsRefusedNamingTheSample) {
  Context context;
  Buffer x = Buffer::random({2, 3, 6}, DType::f32), y = x, table = Buffer::random({5, 2}, DType::f32);
  for (int64_t start : {int64_t(-1), int64_t(6)}) {
    Buffer starts = Buffer::labels({5, start});
    try {
      kernel_of(kernels::rope, DType::f32)(1, y.out(), x.in(), table.in(), starts.in(), {2, 2});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), concat("rope: the start of sample 1 is ", start, ", outside [0, 6)"));
      EXPECT_EQ(error.kind(), ErrorKind::input);
    }
  }
}

TEST(Rows, NormalisationWritesOnlyTheGradientsThatAreWanted) {
  Shape shape{6, 7};
  Buffer x = Buffer::random(shape, DType::f32), dy = Buffer::random(shape, DType::f32, -1, 1, 3), none;
  Buffer dx(shape, DType::f32), dweight({7}, DType::f32), per_row({6}, DType::f32), per_column({7}, DType::f32);
  for (int64_t i = 0; i < 6; ++i) per_row.set(i, 1 + double(i));
  for (int64_t i = 0; i < 7; ++i) per_column.set(i, 1 + double(i));
  using Two = std::array<Buffer, 2>;
  for (const Two& wanted : {Two{dx, none}, Two{none, dweight}})
    expect_like_reference(SG_BOTH(rms_norm_backward), DType::f32, wanted, {24}, dy, x, none, per_row);
  using Three = std::array<Buffer, 3>;
  for (const Three& wanted : {Three{dx, none, none}, Three{none, dweight, none}, Three{none, none, dweight}}) {
    expect_like_reference(SG_BOTH(layer_norm_backward), DType::f32, wanted, {24}, dy, x, none, per_row, per_row);
    expect_like_reference(SG_BOTH(batch_norm_backward), DType::f32, wanted, {24}, dy, x, none, per_column, per_column);
  }
}

TEST(Rows, SumsOfSquaresMatchTheReference) {
  for (DType dtype : kFloats)
    for (auto [shape, kept] : {std::pair(Shape{3, 5}, Shape{3, 1}),
                               {Shape{4, 3, 7}, Shape{4}},
                               {Shape{2, 9001}, Shape{2}},
                               {Shape{1, 20003}, Shape{}},
                               {Shape{700, 40}, Shape{700}},
                               {Shape{3, 0}, Shape{3}},
                               {Shape{0, 4}, Shape{0}}}) {
      Buffer x = Buffer::random(shape, dtype);
      double roundings = 8 + std::sqrt(double(x.numel())) / 8;
      expect_like_reference(SG_BOTH(square_sums), dtype, one(kept, statistic(dtype)), {roundings}, x);
    }
}

TEST(Rows, MseAndHuberAndTheirBackwardMatchTheReference) {
  std::vector<Shape> shapes(std::begin(kMatrices), std::end(kMatrices));
  shapes.push_back({3, 1999});  // more than one block of a GPU adds
  for (DType dtype : kFloats)
    for (const Shape& shape : shapes) {
      Buffer x = Buffer::random(shape, dtype), target = Buffer::random(shape, dtype, -2, 2, 9);
      Buffer dloss = Buffer::of({}, statistic(dtype), {0.75});
      double roundings = 8 + std::sqrt(double(shape.numel())) / 8;  // a running sum of n values loses about sqrt(n)
      expect_like_reference(SG_BOTH(mse), dtype, one({}, statistic(dtype)), {roundings}, x, target, 0.5);
      expect_like_reference(SG_BOTH(mse_backward), dtype, one(shape, dtype), {4}, dloss, x, target, 0.5);
      for (double delta : {0.25, 1.5}) {
        expect_like_reference(SG_BOTH(huber_loss), dtype, one({}, statistic(dtype)), {roundings}, x, target, 0.5,
                              delta);
        expect_like_reference(SG_BOTH(huber_loss_backward), dtype, one(shape, dtype), {4}, dloss, x, target, 0.5,
                              delta);
      }
    }
}

// Of all columns, and of the first ones only.
TEST(Rows, CrossEntropyAndItsBackwardMatchTheReference) {
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{0, 5}, Shape{1, 1}, Shape{3, 2}, Shape{150, 10}, Shape{7, 33}, Shape{4099, 3}})
      for (int64_t classes : {int64_t(0), shape[1] - 1}) {
        Buffer x = Buffer::random(shape, dtype, -5, 5);
        double last = double((classes > 0 ? classes : shape[1]) - 1);
        Buffer labels = Buffer::random({shape[0]}, DType::i64, 0, last, 11);
        if (shape[0] > 2) labels.set(1, -100);
        Buffer dloss = Buffer::of({}, statistic(dtype), {0.75}), lse({shape[0], 2}, statistic(dtype)), none;
        Buffer loss({}, statistic(dtype));
        kernels::CrossEntropyArgs args{0.5, -100, classes};
        expect_like_reference(SG_BOTH(cross_entropy), dtype, std::array<Buffer, 2>{loss, lse}, {8}, x, labels, args);
        expect_like_reference(SG_BOTH(cross_entropy), dtype, std::array<Buffer, 2>{loss, none}, {8}, x, labels, args);
        reference::cross_entropy(loss.out(), lse.out(), x.in(), labels.in(), args);
        expect_like_reference(SG_BOTH(cross_entropy_backward), dtype, one(shape, dtype), {8}, dloss, x, lse, labels,
                              args);
      }
}

// Differences of logits are what counts.
TEST(Rows, CrossEntropyOfLogitsFarFromZeroIsThatOfLogitsNearIt) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64})
    for (double far : {0., 1e6, -1e6}) {
      Buffer x = Buffer::of({2, 3}, dtype, {far + 1, far, far - 1, far, far, far - 0.5});
      Buffer labels = Buffer::labels({0, 2}), dloss = Buffer::of({}, statistic(dtype), {1});
      Buffer loss({}, statistic(dtype)), lse({2, 2}, statistic(dtype)), dx({2, 3}, dtype);
      kernels::CrossEntropyArgs args{1, -100};
      kernel_of(kernels::cross_entropy, dtype)(1, loss.out(), lse.out(), x.in(), labels.in(), args);
      kernel_of(kernels::cross_entropy_backward, dtype)(1, dx.out(), dloss.in(), x.in(), lse.in(), labels.in(), args);
      double first = std::exp(1) + 1 + std::exp(-1), second = 2 + std::exp(-0.5);
      EXPECT_NEAR(loss.get(0), std::log(first) - 1 + std::log(second) + 0.5, 1e-6) << dtype << ' ' << far;
      const double slopes[] = {std::exp(1) / first - 1,    1 / first, std::exp(-1) / first, 1 / second, 1 / second,
                               std::exp(-0.5) / second - 1};
      for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(dx.get(i), slopes[i], 1e-6) << dtype << ' ' << far << ' ' << i;
    }
}

TEST(Rows, CrossEntropyOfEqualLogitsIsTheLogarithmOfTheirNumber) {
  Context context;
  for (double each : {0., 3e38, -3e38}) {
    Buffer x = Buffer::of({1, 2}, DType::f32, {each, each}), labels = Buffer::labels({0}), dx({1, 2}, DType::f32);
    Buffer dloss = Buffer::of({}, DType::f32, {1}), loss({}, DType::f32), lse({1, 2}, DType::f32);
    kernel_of(kernels::cross_entropy, DType::f32)(1, loss.out(), lse.out(), x.in(), labels.in(), {1, -100});
    kernel_of(kernels::cross_entropy_backward, DType::f32)(1, dx.out(), dloss.in(), x.in(), lse.in(), labels.in(),
                                                           {1, -100});
    EXPECT_NEAR(loss.get(0), std::log(2), 1e-6) << each;
    EXPECT_NEAR(dx.get(0), -0.5, 1e-6) << each;
    EXPECT_NEAR(dx.get(1), 0.5, 1e-6) << each;
  }
}

TEST(Rows, BackwardOfCrossEntropyMayLieOverTheLogits) {
  Context context;
  for (DType dtype : kFloats)
    for (int64_t classes : {0, 35}) {
      Buffer x = Buffer::random({9, 37}, dtype, -5, 5), labels = Buffer::random({9}, DType::i64, 0, 34, 11);
      labels.set(4, -100);
      Buffer dloss = Buffer::of({}, statistic(dtype), {0.75}), lse({9, 2}, statistic(dtype)),
             loss({}, statistic(dtype));
      kernels::CrossEntropyArgs args{0.5, -100, classes};
      reference::cross_entropy(loss.out(), lse.out(), x.in(), labels.in(), args);
      Buffer dx(x.shape(), dtype), place = x;
      auto kernel = kernel_of(kernels::cross_entropy_backward, dtype);
      kernel(1, dx.poison().out(), dloss.in(), x.in(), lse.in(), labels.in(), args);
      kernel(1, place.out(), dloss.in(), place.in(), lse.in(), labels.in(), args);
      for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(place.get(i), dx.get(i)) << dtype << ' ' << i;
    }
}

TEST(Rows, CrossEntropyLeavesOutColumnsThatAreNoClasses) {
  for (DType dtype : kFloats)
    for (int64_t classes : {1, 16, 20, 33}) {
      Buffer x = Buffer::random({7, 33}, dtype, -5, 5), loss({}, statistic(dtype)), lse({7, 2}, statistic(dtype));
      for (int64_t i = 0; i < x.numel(); ++i)
        if (i % 33 >= classes) x.set(i, 30);  // larger than any other
      Buffer labels = Buffer::random({7}, DType::i64, 0, double(classes - 1), 11);
      Buffer dloss = Buffer::of({}, statistic(dtype), {0.75});
      kernels::CrossEntropyArgs args{0.5, -100, classes};
      expect_like_reference(SG_BOTH(cross_entropy), dtype, std::array<Buffer, 2>{loss, lse}, {8}, x, labels, args);
      reference::cross_entropy(loss.out(), lse.out(), x.in(), labels.in(), args);
      expect_like_reference(SG_BOTH(cross_entropy_backward), dtype, one({7, 33}, dtype), {8}, dloss, x, lse, labels,
                            args);
    }
}

TEST(Rows, TheGradientOfCrossEntropyMayTakeThePlaceOfTheLogits) {
  Context context;
  for (DType dtype : kFloats) {
    Buffer x = Buffer::random({9, 37}, dtype, -5, 5), loss({}, statistic(dtype)), lse({9, 2}, statistic(dtype)), dx = x;
    Buffer labels = Buffer::random({9}, DType::i64, 0, 29, 11), dloss = Buffer::of({}, statistic(dtype), {0.75});
    labels.set(4, -100);
    kernels::CrossEntropyArgs args{0.5, -100, 30};
    kernel_of(kernels::cross_entropy, dtype)(2, loss.out(), lse.out(), x.in(), labels.in(), args);
    auto backward = kernel_of(kernels::cross_entropy_backward, dtype);
    backward(2, dx.out(), dloss.in(), x.in(), lse.in(), labels.in(), args);
    backward(2, x.out(), dloss.in(), x.in(), lse.in(), labels.in(), args);
    EXPECT_TRUE(x == dx) << dtype;
  }
}

TEST(Refusals, ALabelOutOfRangeIsRefusedNamingRowAndLabel) {
  Context context;
  Buffer x = Buffer::random({3, 4}, DType::f32), loss({}, DType::f32), lse({3, 2}, DType::f32), dx = x;
  Buffer labels = Buffer::labels({0, 4, 1});
  auto kernel = kernel_of(kernels::cross_entropy, DType::f32);
  auto backward = kernel_of(kernels::cross_entropy_backward, DType::f32);
  const char* expected = "cross_entropy: the label of row 1 is 4, outside [0, 4) and not ignore_index (-1)";
  try {
    kernel(1, loss.out(), lse.out(), x.in(), labels.in(), {1, -1});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), expected);
    EXPECT_EQ(error.kind(), ErrorKind::input);
  }
  EXPECT_THROW(backward(1, dx.out(), loss.in(), x.in(), lse.in(), labels.in(), {1, -1}), Error);
  Buffer padded = Buffer::labels({0, 1, 2});  // the third of two classes
  EXPECT_THROW(kernel(1, loss.out(), lse.out(), x.in(), padded.in(), {1, -1, 2}), Error);
}

TEST(Rows, LargeInputsGiveTheSameBitsForEveryNumberOfThreads) {
  Shape large{1201, 130};
  Buffer x = Buffer::random(large, DType::f32, -3, 3), dy = Buffer::random(large, DType::f32, -1, 1, 3), none;
  Buffer labels = Buffer::random({1201}, DType::i64, 0, 129, 11), loss({}, DType::f32), lse({1201, 2}, DType::f32);
  Buffer whole = Buffer::random({1201, 260}, DType::f32, -3, 3);
  expect_like_reference(SG_BOTH(swiglu), DType::f32, one(large, DType::f32), {6}, whole);
  expect_like_reference(SG_BOTH(swiglu_backward), DType::f32, one({1201, 260}, DType::f32), {8}, dy, whole);
  Buffer rows({1201}, DType::f32), columns({130}, DType::f32), dloss = Buffer::of({}, DType::f32, {1});
  kernels::CrossEntropyArgs args{1.0 / 1201, -100};
  expect_like_reference(SG_BOTH(softmax), DType::f32, one(large, DType::f32), {8}, x, 1, false);
  expect_like_reference(SG_BOTH(mse), DType::f32, one({}, DType::f32), {8}, x, dy, 0.5);
  expect_like_reference(SG_BOTH(huber_loss), DType::f32, one({}, DType::f32), {8}, x, dy, 0.5, 1);
  expect_like_reference(SG_BOTH(cross_entropy), DType::f32, std::array<Buffer, 2>{loss, lse}, {8}, x, labels, args);
  reference::cross_entropy(loss.out(), lse.out(), x.in(), labels.in(), args);
  expect_like_reference(SG_BOTH(cross_entropy_backward), DType::f32, one(large, DType::f32), {8}, dloss, x, lse, labels,
                        args);
  Buffer qkv = Buffer::random({2, 300, 200}, DType::f32), table = Buffer::random({300, 40}, DType::f32, -1);
  expect_like_reference(SG_BOTH(rope), DType::f32, one(qkv.shape(), DType::f32), {12}, qkv, table, none,
                        kernels::RopeArgs{.heads = 3});
  using Three = std::array<Buffer, 3>;
  expect_like_reference(SG_BOTH(layer_norm), DType::f32, Three{x, rows, rows}, {24}, x, none, none, 1e-5);
  expect_like_reference(SG_BOTH(rms_norm), DType::f32, std::array<Buffer, 2>{x, rows}, {24}, x, none, 1e-5);
  expect_like_reference(SG_BOTH(batch_norm), DType::f32, Three{x, columns, columns}, {24}, x, none, none, 1e-5);
  for (int64_t i = 0; i < 1201; ++i) rows.set(i, 0.5);
  for (int64_t i = 0; i < 130; ++i) columns.set(i, 0.5);
  Three gradients{x, columns, columns};
  expect_like_reference(SG_BOTH(layer_norm_backward), DType::f32, gradients, {60}, dy, x, none, rows, rows);
  expect_like_reference(SG_BOTH(rms_norm_backward), DType::f32, std::array<Buffer, 2>{x, columns}, {60}, dy, x, none,
                        rows);
  expect_like_reference(SG_BOTH(batch_norm_backward), DType::f32, gradients, {60}, dy, x, none, columns, columns);
  expect_batch_norm_like_reference({5, 13, 30, 33}, DType::f32, true);
}

}  // namespace
}  // namespace shardgrad::test
