// A sum and its norm, at every number of packs that a thread keeps of a row.

#include <cmath>

#include <shardgrad/certify/reference/transformer.h>
#include <tests/kernels/placed.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

/// What 1, 2, 4 and 8 packs of a warp's lanes hold, a block's threads, and none, or an element more.
std::vector<int64_t> norm_widths(DType dtype) {
  int64_t pack = 16 / int64_t(size_of(dtype));
  return {1,           8,           37,
          32 * pack,   64 * pack,   64 * pack + 1,
          128 * pack,  256 * pack,  256 * pack + 1,
          1024 * pack, 2048 * pack, 2048 * pack + 1};
}

struct Rows {
  Buffer x, residual, weight, bias;
  Rows(int64_t width, DType dtype)
      : x(Buffer::random({2, width}, dtype, -1, 3)),
        residual(Buffer::random({2, width}, dtype, -2, 2, 3)),
        weight(Buffer::random({width}, dtype, 0.5, 2, 4)),
        bias(Buffer::random({width}, dtype, -1, 1, 5)) {}
};

TEST(AddNorm, MatchesTheReferenceAtEveryWidth) {
  for (DType dtype : kFloats)
    for (int64_t width : norm_widths(dtype)) {
      if (width == 1) continue;  // which has no variance: 1/sqrt(eps) magnifies every rounding
      SCOPED_TRACE(concat(dtype, ", ", width, " columns"));
      // In f64 the reference rounds as often as it adds. A kernel adds up at most a quarter of a row in f32, as the
      // plain one does, and so many roundings wander off by their root.
      Tolerance tolerance{dtype == DType::f64 ? 2000. : 24. + std::sqrt(double(width) / 4)};
      Rows in(width, dtype);
      Buffer y(in.x.shape(), dtype), sum = y, mean({2}, statistic(dtype)), rstd = mean;
      expect_like_reference(SG_BOTH(add_layer_norm), dtype, std::array<Buffer, 4>{sum, y, mean, rstd}, tolerance, in.x,
                            in.residual, in.weight, in.bias, 1e-1);
      expect_like_reference(SG_BOTH(add_rms_norm), dtype, std::array<Buffer, 3>{sum, y, rstd}, tolerance, in.x,
                            in.residual, in.weight, 1e-1);
    }
}

using Results = std::vector<std::vector<double>>;

Results in_one(Rows& in, DType dtype, bool at_a_pack, float beta) {
  auto at = [&](const Buffer& buffer) { return Placed(buffer, at_a_pack); };
  Placed x = at(in.x), residual = at(in.residual), weight = at(in.weight), bias = at(in.bias);
  Placed sum = at(in.x), y = at(in.residual), sum_rms = at(in.x), y_rms = at(in.residual);
  Buffer mean({2}, statistic(dtype)), rstd = mean, rstd_rms = mean;
  kernel_of(kernels::add_layer_norm, dtype)(1, sum.out(beta), y.out(beta), mean.out(), rstd.out(), x.in(),
                                            residual.in(), weight.in(), bias.in(), 1e-5);
  kernel_of(kernels::add_rms_norm, dtype)(1, sum_rms.out(beta), y_rms.out(beta), rstd_rms.out(), x.in(), residual.in(),
                                          {}, 1e-5);
  return {sum.values(), y.values(), mean.values(), rstd.values(), sum_rms.values(), y_rms.values(), rstd_rms.values()};
}

Results in_two(Rows& in, DType dtype, float beta) {
  Placed sum(in.x, true), y(in.residual, true), y_rms(in.residual, true);
  Buffer mean({2}, statistic(dtype)), rstd = mean, rstd_rms = mean, made(in.x.shape(), dtype);
  kernel_of(kernels::add, dtype)(1, made.out(), in.x.in(), in.residual.in());
  kernel_of(kernels::add, dtype)(1, sum.out(beta), in.x.in(), in.residual.in());
  kernel_of(kernels::layer_norm, dtype)(1, y.out(beta), mean.out(), rstd.out(), made.in(), in.weight.in(), in.bias.in(),
                                        1e-5);
  kernel_of(kernels::rms_norm, dtype)(1, y_rms.out(beta), rstd_rms.out(), made.in(), {}, 1e-5);
  return {sum.values(), y.values(), mean.values(), rstd.values(), sum.values(), y_rms.values(), rstd_rms.values()};
}

// At a pack what was there is written over, elsewhere it is added to. f16 and bf16 are rounded before that, once more
// than add itself rounds: these sums are left out.
TEST(AddNorm, HasTheBitsOfTheTwoKernelsAtEveryWidthAndAddress) {
  Context context;
  for (DType dtype : kFloats)
    for (int64_t width : norm_widths(dtype))
      for (bool at_a_pack : {true, false}) {
        SCOPED_TRACE(concat(dtype, ", ", width, " columns, at a pack ", at_a_pack));
        Rows in(width, dtype);
        float beta = at_a_pack ? 0 : 1;
        Results found = in_one(in, dtype, at_a_pack, beta), expected = in_two(in, dtype, beta);
        for (size_t i : {0, 4})
          if (beta == 1 && size_of(dtype) == 2) found[i] = expected[i] = {};
        EXPECT_EQ(found, expected);
      }
}

}  // namespace
}  // namespace shardgrad::test
