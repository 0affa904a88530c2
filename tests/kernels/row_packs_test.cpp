// Operations over rows at every number of packs that a thread keeps of one, whatever the address of the row.

#include <cmath>

#include <shardgrad/certify/reference/elementwise.h>
#include <shardgrad/certify/reference/rows.h>
#include <shardgrad/certify/reference/transformer.h>
#include <tests/kernels/placed.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

/// One row longer than what 1, 2, 4 and 8 packs of a warp's lanes hold, than those of a block's threads, and than all.
std::vector<int64_t> widths(DType dtype) {
  int64_t pack = 16 / int64_t(size_of(dtype));
  std::vector<int64_t> all{8, 32 * pack};
  for (int64_t packs : {32, 64, 128, 256, 512, 1024, 2048}) all.push_back(packs * pack + 1);
  return all;
}

TEST(RowPacks, SoftmaxMatchesTheReferenceAtEveryWidth) {
  for (DType dtype : kFloats)
    for (int64_t width : widths(dtype)) {
      SCOPED_TRACE(concat(dtype, ", ", width, " columns"));
      Shape shape{2, width};
      Buffer x = Buffer::random(shape, dtype, -5, 5), dy = Buffer::random(shape, dtype, -1, 1, 3), y(shape, dtype);
      expect_like_reference(SG_BOTH(softmax), dtype, one(shape, dtype), {6}, x, 1, true);
      reference::softmax(y.out(), x.in(), 1, false);
      expect_like_reference(SG_BOTH(softmax_backward), dtype, one(shape, dtype), {24}, dy, y, 1, false);
    }
}

TEST(RowPacks, LayerNormMatchesTheReferenceAtEveryWidth) {
  for (DType dtype : kFloats)
    for (int64_t width : widths(dtype)) {
      SCOPED_TRACE(concat(dtype, ", ", width, " columns"));
      Shape shape{2, width};
      Buffer x = Buffer::random(shape, dtype, -1, 3), dy = Buffer::random(shape, dtype, -1, 1, 3), y(shape, dtype),
             none;
      Buffer weight = Buffer::random({width}, dtype, 0.5, 2, 4), bias = Buffer::random({width}, dtype, -1, 1, 5);
      Buffer mean({2}, statistic(dtype)), rstd = mean;
      expect_like_reference(SG_BOTH(layer_norm), dtype, std::array<Buffer, 3>{y, mean, rstd}, {24}, x, weight, bias,
                            1e-5);
      reference::layer_norm(y.out(), mean.out(), rstd.out(), x.in(), weight.in(), bias.in(), 1e-5);
      expect_like_reference(SG_BOTH(layer_norm_backward), dtype, std::array<Buffer, 3>{y, none, none}, {24}, dy, x,
                            weight, mean, rstd);
    }
}

// Sums of chunks of rows are joined by the launch of dx where there is one, and else by one of their own: of 2 chunks,
// of more than the threads of a column, of more than are left to dx; with a row of a warp and of a block.
TEST(RowPacks, WeightsHaveTheSameGradientsWithAndWithoutThatOfX) {
  Context context;
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{300, widths(dtype)[5]}, {2700, 7}, {16500, 2}}) {
      SCOPED_TRACE(concat(dtype, shape));
      Buffer x = Buffer::random(shape, dtype, -1, 3), dy = Buffer::random(shape, dtype, -1, 1, 3), none;
      Buffer mean = Buffer::random({shape[0]}, statistic(dtype), 0, 1, 4),
             rstd = Buffer::random({shape[0]}, statistic(dtype), 0.5, 2, 5);
      std::vector<std::vector<double>> found;
      for (bool wanted : {true, false}) {
        Buffer dx(shape, dtype), dweight = Buffer::random({shape[1]}, dtype, -1, 1, 6), dbias = dweight;
        kernel_of(kernels::layer_norm_backward, dtype)(1, wanted ? dx.out() : OutView{}, dweight.out(1), dbias.out(),
                                                       dy.in(), x.in(), none.in(), mean.in(), rstd.in());
        found.push_back(dweight.values());
        found.push_back(dbias.values());
      }
      EXPECT_EQ(found[0], found[2]);
      EXPECT_EQ(found[1], found[3]);
    }
}

// The largest logit comes late, so what was summed before it shrinks.
TEST(RowPacks, CrossEntropyMatchesTheReferenceAtEveryWidth) {
  for (DType dtype : kFloats)
    for (int64_t width : widths(dtype)) {
      SCOPED_TRACE(concat(dtype, ", ", width, " columns"));
      Buffer x = Buffer::random({2, width}, dtype, -5, 5), labels = Buffer::labels({0, width - 1}),
             loss({}, statistic(dtype));
      for (int64_t i = 0; i < x.numel(); ++i) x.set(i, x.get(i) + 6 * double(i % width) / double(width));
      Buffer lse({2, 2}, statistic(dtype)), dloss = Buffer::of({}, statistic(dtype), {2});
      kernels::CrossEntropyArgs args{.scale = 0.5, .ignore_index = -1};
      expect_like_reference(SG_BOTH(cross_entropy), dtype, std::array<Buffer, 2>{loss, lse}, {16}, x, labels, args);
      reference::cross_entropy(loss.out(), lse.out(), x.in(), labels.in(), args);
      expect_like_reference(SG_BOTH(cross_entropy_backward), dtype, one({2, width}, dtype), {16}, dloss, x, lse, labels,
                            args);
    }
}

kernels::NormRanges norm_of(Buffer& y, View x) {
  return std::make_shared<std::vector<kernels::NormRange>>(1, kernels::NormRange{y.out(), x, kernels::kNormNode});
}

// The last pack of what is summed is not whole.
TEST(RowPacks, NormsOfAnyAddressReadNothingBeyond) {
  Context context;
  for (DType dtype : kFloats)
    for (int64_t n : {1, 3, 131, 1023, 33001}) {
      Buffer x = Buffer::random({n}, dtype, -2, 2), found[2];
      for (bool at_a_pack : {true, false}) {
        Placed placed(x, at_a_pack);
        for (int64_t i = placed.from + n; i < placed.all.numel(); ++i) placed.all.set(i, NAN);
        found[at_a_pack] = Buffer({(n + kernels::kNormNode - 1) / kernels::kNormNode}, DType::f64);
        kernel_of(kernels::norm_powers, dtype)(1, norm_of(found[at_a_pack], placed.in()), 2);
      }
      EXPECT_EQ(found[0].values(), found[1].values()) << dtype << ", " << n;
      EXPECT_TRUE(std::isfinite(found[1].get(0)));
    }
}

// Elements that move one by one are added in the order of those that move in packs, and both add to what was there.
TEST(RowPacks, TheBitsAreThoseOfAnyAddress) {
  Context context;
  for (DType dtype : kFloats)
    for (int64_t width : {int64_t(48), widths(dtype)[5] - 1}) {
      Shape shape{3, width};
      Buffer x = Buffer::random(shape, dtype, -2, 2), dy = Buffer::random(shape, dtype, -1, 1, 3);
      Buffer weight = Buffer::random({width}, dtype, 0.5, 2, 4), bias = Buffer::random({width}, dtype, -1, 1, 5);
      Buffer labels = Buffer::labels({1, 0, width - 2}), dloss = Buffer::of({1}, statistic(dtype), {2});
      std::vector<std::vector<double>> found[2];
      for (bool at_a_pack : {true, false}) {
        auto at = [&](const Buffer& buffer) { return Placed(buffer, at_a_pack); };
        Placed results[] = {at(dy), at(dy), at(dy), at(dy), at(dy)}, px = at(x), pdy = at(dy), w = at(weight),
               b = at(bias);
        Buffer mean({3}, statistic(dtype)), rstd = mean, lse({3, 2}, statistic(dtype)), loss({1}, statistic(dtype)),
                                            powers({1}, DType::f64);
        Buffer y(shape, dtype);
        kernel_of(kernels::layer_norm, dtype)(1, results[0].out(1), mean.out(), rstd.out(), px.in(), w.in(), b.in(),
                                              1e-5);
        kernel_of(kernels::layer_norm_backward, dtype)(1, results[1].out(1), {}, {}, pdy.in(), px.in(), w.in(),
                                                       mean.in(), rstd.in());
        kernel_of(kernels::softmax, dtype)(1, results[2].out(), px.in(), 1, false);
        kernel_of(kernels::softmax_backward, dtype)(1, results[3].out(1), pdy.in(), results[2].in(), 1, false);
        kernels::CrossEntropyArgs args{.scale = 0.5, .ignore_index = -1, .classes = width - 1};  // the last is no class
        kernel_of(kernels::cross_entropy, dtype)(1, loss.out(), lse.out(), px.in(), labels.in(), args);
        kernel_of(kernels::cross_entropy_backward, dtype)(1, results[4].out(1), dloss.in(), px.in(), lse.in(),
                                                          labels.in(), args);
        kernel_of(kernels::norm_powers, dtype)(1, norm_of(powers, px.in()), 2);
        for (const Placed& result : results) found[at_a_pack].push_back(result.values());
        for (const Buffer* each : {&mean, &rstd, &lse, &loss, &powers}) found[at_a_pack].push_back(each->values());
      }
      for (size_t i = 0; i < found[0].size(); ++i) EXPECT_EQ(found[0][i], found[1][i]) << dtype << ", result " << i;
    }
}

/// What dropout, swiglu and its backward, rope and tree_sum add to `old`, all of it at one kind of address.
std::vector<std::vector<double>> ranges_at(const Buffer& x, const Buffer& old, int64_t width, bool at_a_pack) {
  auto at = [&](const Buffer& buffer) { return Placed(buffer, at_a_pack); };
  DType dtype = x.dtype();
  Placed px = at(x), dropped = at(old), dx = at(old);
  for (int64_t first : {0, 4, 8})
    kernel_of(kernels::dropout, dtype)(1, dropped.out(1), px.in(), {}, {0.3, 5, 6, first});
  Buffer gated = Buffer::random({x.numel() / width / 2, width}, dtype, -1, 1, 7);
  Placed y = at(gated), dy = at(gated), parts[] = {at(x), at(old), at(x)};
  px.shape = dx.shape = {gated.shape()[0], 2 * width};
  kernel_of(kernels::swiglu, dtype)(1, y.out(1), px.in());
  kernel_of(kernels::swiglu_backward, dtype)(1, dx.out(1), dy.in(), px.in());
  int64_t half = width % 16 == 0 ? 8 : 3;
  Placed table = at(Buffer::random({6, 2 * half}, statistic(dtype), -1)), rotated = at(old);
  px.shape = rotated.shape = {1, 6, width};
  kernel_of(kernels::rope, dtype)(1, rotated.out(1), px.in(), table.in(), {}, {.heads = 2});
  std::vector<std::vector<double>> found{dropped.values(), y.values(), dx.values(), rotated.values()};
  for (int count : {1, 3, 8, 21}) {
    std::vector<const void*> pointers;
    for (int k = 0; k < count; ++k) pointers.push_back(parts[k % 3].in().data);
    Placed sum = at(old);
    kernel_of(kernels::tree_sum, dtype)(1, sum.out(1), {pointers.data(), count, dtype});
    found.push_back(sum.values());
  }
  return found;
}

TEST(RowPacks, RangesHaveTheBitsOfAnyAddress) {
  Context context;
  for (DType dtype : kFloats)
    for (int64_t width : {int64_t(48), int64_t(21)}) {
      SCOPED_TRACE(concat(dtype, ", ", width, " columns"));
      Buffer x = Buffer::random({6 * width}, dtype, -2, 2), old = Buffer::random({6 * width}, dtype, -1, 1, 3);
      EXPECT_EQ(ranges_at(x, old, width, true), ranges_at(x, old, width, false));
    }
}

}  // namespace
}  // namespace shardgrad::test
