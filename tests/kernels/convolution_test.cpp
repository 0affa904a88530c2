// Convolutions against loops over every product (certify/reference/images.h).

#include <shardgrad/certify/reference/images.h>
#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

struct Case {
  const char* what;
  Shape x, w;
  kernels::ConvArgs args;
};

Window window(int64_t kernel, int64_t stride = 1, int64_t padding = 0, int64_t dilation = 1) {
  return {kernel, stride, padding, dilation};
}

const Case kCases[] = {
    {"one element", {1, 1, 1, 1}, {1, 1, 1, 1}, {window(1), window(1)}},
    {"no samples", {0, 2, 4, 4}, {3, 2, 2, 2}, {window(2), window(2)}},
    {"no channels", {2, 0, 4, 4}, {3, 0, 2, 2}, {window(2), window(2)}},
    {"padding that keeps the size", {2, 3, 9, 7}, {4, 3, 3, 3}, {window(3, 1, 1), window(3, 1, 1)}},
    {"rows of whole vectors", {2, 3, 5, 32}, {13, 3, 3, 3}, {window(3, 1, 1), window(3, 1, 1)}},
    {"more padding than kernel", {1, 2, 3, 3}, {2, 2, 2, 2}, {window(2, 1, 3), window(2, 1, 4)}},
    {"other windows down and across", {2, 2, 11, 8}, {3, 2, 4, 1}, {window(4, 3, 2), window(1, 2)}},
    {"strides that leave places out", {2, 3, 8, 9}, {7, 3, 3, 2}, {window(3, 2, 1), window(2, 3)}},
    {"a stride wider than the kernel", {1, 2, 7, 9}, {3, 2, 1, 1}, {window(1, 2), window(1, 3)}},
    {"dilation", {2, 2, 10, 9}, {3, 2, 3, 2}, {window(3, 1, 2, 3), window(2, 1, 1, 2)}},
    {"dilation and stride", {2, 2, 13, 12}, {3, 2, 3, 3}, {window(3, 2, 2, 3), window(3, 3, 1, 2)}},
    {"dilation that a stride divides", {1, 1, 12, 12}, {2, 1, 3, 3}, {window(3, 2, 2, 2), window(3, 2, 1, 2)}},
    {"groups", {2, 6, 6, 5}, {4, 3, 3, 3}, {window(3, 1, 1), window(3, 1, 1), 2}},
    {"a group for each channel", {2, 5, 7, 7}, {10, 1, 3, 3}, {window(3, 2, 1), window(3, 2, 1), 5}},
    {"an image one high", {3, 4, 1, 70}, {5, 4, 1, 5}, {window(1), window(5, 2, 2)}},
    {"an image one wide", {3, 4, 70, 1}, {5, 4, 5, 1}, {window(5, 1, 4, 2), window(1)}},
    {"results and sums beyond a tile", {1, 70, 6, 11}, {67, 70, 3, 3}, {window(3, 1, 1), window(3, 1, 1)}},
    {"many small images", {19, 5, 4, 4}, {40, 5, 3, 3}, {window(3, 1, 1), window(3, 1, 1)}},
    {"images summed two at a time", {5, 3, 14, 15}, {4, 3, 3, 3}, {window(3, 1, 1), window(3, 1, 1)}},
    {"many small images in groups", {7, 4, 5, 3}, {66, 2, 2, 2}, {window(2, 2, 1), window(2), 2}},
};

// Many samples of small images, which are a vector on the CPU.
const Case kManySamples[] = {
    {"two sets, the last not whole", {34, 29, 5, 3}, {33, 29, 3, 3}, {window(3, 1, 1), window(3, 1, 1)}},
    {"strides", {18, 64, 5, 6}, {66, 32, 3, 3}, {window(3, 2, 1), window(3, 3), 2}},
    {"dilation and much padding", {17, 33, 4, 3}, {34, 33, 2, 4}, {window(2, 1, 2, 3), window(4, 1, 4, 2)}},
    {"one place", {66, 260, 1, 1}, {33, 260, 1, 1}, {window(1), window(1)}},
    {"windows that see only padding", {9, 32, 2, 2}, {32, 32, 2, 2}, {window(2, 1, 3), window(2, 3, 2)}},
    {"no channels", {40, 0, 4, 4}, {35, 0, 3, 3}, {window(3, 1, 1), window(3, 1, 1)}},
};

Shape result_shape(const Case& c) { return {c.x[0], c.w[0], c.args.down.places(c.x[2]), c.args.across.places(c.x[3])}; }

// Of sums of so many products, in which roundings mostly cancel.
Tolerance for_sums_of(int64_t products) { return {8 + std::sqrt(double(products))}; }

void check_forward(const Case& c, DType dtype) {
  for (bool biased : {false, true}) {
    SCOPED_TRACE(c.what);
    Buffer x = Buffer::random(c.x, dtype, -1, 1), w = Buffer::random(c.w, dtype, -1, 1, 2), none;
    Buffer bias = biased ? Buffer::random({c.w[0]}, dtype, -1, 1, 3) : none;
    int64_t products = c.w[1] * c.w[2] * c.w[3];
    expect_like_reference(SG_BOTH(conv2d), dtype, one(result_shape(c), dtype), for_sums_of(products), x, w, bias,
                          c.args);
  }
}

void check_gradient_of_image(const Case& c, DType dtype) {
  SCOPED_TRACE(c.what);
  Buffer dy = Buffer::random(result_shape(c), dtype, -1, 1), w = Buffer::random(c.w, dtype, -1, 1, 2);
  int64_t products = c.w[0] * c.w[2] * c.w[3];
  expect_like_reference(SG_BOTH(conv2d_backward_input), dtype, one(c.x, dtype), for_sums_of(products), dy, w, c.args);
}

TEST(Convolution, ForwardMatchesTheReference) {
  for (const Case& c : kCases)
    for (DType dtype : kFloats) check_forward(c, dtype);
}

TEST(Convolution, TheGradientOfTheImageMatchesTheReference) {
  for (const Case& c : kCases)
    for (DType dtype : kFloats) check_gradient_of_image(c, dtype);
}

TEST(CpuConvolution, OfManySamplesMatchesTheReference) {
  for (const Case& c : kManySamples)
    for (DType dtype : kFloats) {
      check_forward(c, dtype);
      check_gradient_of_image(c, dtype);
    }
}

TEST(Convolution, TheGradientsOfWeightAndBiasMatchTheReference) {
  for (const Case& c : kCases)
    for (DType dtype : kFloats)
      for (auto [weight, bias] : {std::pair(true, true), {true, false}, {false, true}}) {
        SCOPED_TRACE(c.what);
        Buffer dy = Buffer::random(result_shape(c), dtype, -1, 1), x = Buffer::random(c.x, dtype, -1, 1, 2), none;
        std::array<Buffer, 2> wanted{weight ? Buffer(c.w, dtype) : none, bias ? Buffer({c.w[0]}, dtype) : none};
        int64_t places = dy.shape()[0] * dy.shape()[2] * dy.shape()[3];
        expect_like_reference(SG_BOTH(conv2d_backward_weight), dtype, wanted, for_sums_of(places), dy, x, c.args);
      }
}

// Tiles of the products leave out places that see the padding: those of many channels, and what is left over.
const Case kManyChannels[] = {{"a tile and a rest", {3, 16, 4, 4}, {5, 16, 3, 3}, {window(3, 1, 1), window(3, 1, 1)}},
                              {"steps and holes", {2, 13, 7, 5}, {3, 13, 3, 2}, {window(3, 2, 3), window(2, 2, 1)}},
                              {"mostly padding", {9, 24, 2, 1}, {40, 24, 3, 3}, {window(3, 1, 2), window(3, 1, 2)}}};

void check_gradient_of_weight(const Case& c, DType dtype, Buffer dy) {
  SCOPED_TRACE(c.what);
  Buffer x = Buffer::random(c.x, dtype, -1, 1, 2), none;
  std::array<Buffer, 2> wanted{Buffer(c.w, dtype), none};
  int64_t places = dy.shape()[0] * dy.shape()[2] * dy.shape()[3];
  expect_like_reference(SG_BOTH(conv2d_backward_weight), dtype, wanted, for_sums_of(places), dy, x, c.args);
}

TEST(CpuConvolution, TheGradientOfTheWeightOfManyChannelsMatchesTheReference) {
  for (const Case& c : kManyChannels)
    for (DType dtype : kFloats) check_gradient_of_weight(c, dtype, Buffer::random(result_shape(c), dtype, -1, 1));
}

TEST(CpuConvolution, TheGradientOfTheWeightMeetsNumbersThatAreNotFiniteInPaddingToo) {
  for (const Case& c : kManyChannels)
    for (auto [from_end, value] : {std::pair(false, double(INFINITY)), {true, double(NAN)}}) {
      Buffer dy = Buffer::random(result_shape(c), DType::f32, 1, 2);
      dy.set(from_end ? dy.numel() - 1 : 0, value);
      check_gradient_of_weight(c, DType::f32, dy);
    }
}

// Bands of rows, and of columns where a row is long, are computed one after the other.
TEST(Convolution, OfLargeImagesIsThatOfTheirParts) {
  const Case cases[] = {{"tall", {1, 3, 150, 130}, {4, 3, 3, 3}, {window(3, 1, 1), window(3, 2, 1)}},
                        {"wide", {1, 1, 2, 9000}, {2, 1, 2, 3}, {window(2), window(3, 1, 1)}},
                        {"many channels", {2, 300, 9, 18}, {3, 300, 2, 2}, {window(2), window(2)}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Buffer x = Buffer::random(c.x, DType::f32, -1, 1), w = Buffer::random(c.w, DType::f32, -1, 1, 2), none;
    Buffer dy = Buffer::random(result_shape(c), DType::f32, -1, 1, 3);
    expect_like_reference(SG_BOTH(conv2d), DType::f32, one(result_shape(c), DType::f32), for_sums_of(1200), x, w, none,
                          c.args);
    expect_like_reference(SG_BOTH(conv2d_backward_input), DType::f32, one(c.x, DType::f32), for_sums_of(1200), dy, w,
                          c.args);
    std::array<Buffer, 2> wanted{Buffer(c.w, DType::f32), none};
    expect_like_reference(SG_BOTH(conv2d_backward_weight), DType::f32, wanted, for_sums_of(1200), dy, x, c.args);
  }
}

// A channel's gradients are added up by chunks, and then the chunks.
TEST(Convolution, TheGradientOfABiasSumsImagesOfManyPlaces) {
  Case c{"more places than a chunk", {3, 1, 50, 40}, {2, 1, 1, 1}, {window(1), window(1)}};
  for (DType dtype : kFloats) {
    Buffer dy = Buffer::random(result_shape(c), dtype, -1, 1), x = Buffer::random(c.x, dtype, -1, 1, 2), none;
    std::array<Buffer, 2> wanted{none, Buffer({c.w[0]}, dtype)};
    expect_like_reference(SG_BOTH(conv2d_backward_weight), dtype, wanted, for_sums_of(6000), dy, x, c.args);
  }
}

// On every path of the CPU, and where a window meets padding too: what is multiplied there is a zero.
// A grid of CUDA's has at most 65535 blocks along all its sides but the first.
TEST(ConvolutionSlow, HasAnyNumberOfGroups) {
  if (test_device() == DeviceKind::sim) GTEST_SKIP() << "which takes minutes for so many blocks";
  constexpr int64_t groups = 65537;
  Context context;
  Shape x{1, groups, 1, 1}, w{groups, 1, 1, 1};
  kernels::ConvArgs args{window(1), window(1), groups};
  Buffer in = Buffer::random(x, DType::f32, -1, 1), by = Buffer::random(w, DType::f32, -1, 1, 2);
  Buffer y(x, DType::f32), dw(w, DType::f32), none;
  kernel_of(kernels::conv2d, DType::f32)(2, y.poison().out(), in.in(), by.in(), none.in(), args);
  kernel_of(kernels::conv2d_backward_weight, DType::f32)(2, dw.poison().out(), none.out(), y.in(), in.in(), args);
  for (int64_t g = 0; g < groups; ++g) {
    ASSERT_EQ(y.get(g), float(in.get(g) * by.get(g)));
    ASSERT_EQ(dw.get(g), float(y.get(g) * in.get(g)));
  }
}

TEST(Convolution, NumbersThatAreNotFiniteReachTheWindowsThatMeetThem) {
  for (const Case& c : kCases) {
    if (c.x.numel() == 0 || c.w.numel() < 2) continue;
    SCOPED_TRACE(c.what);
    Buffer x = Buffer::random(c.x, DType::f32, 1, 2), w = Buffer::random(c.w, DType::f32, 1, 2, 2), none;
    Buffer dy = Buffer::random(result_shape(c), DType::f32, 1, 2, 3), broken = w;
    std::array<Buffer, 2> wanted{Buffer(c.w, DType::f32), none};
    x.set(x.numel() / 2, INFINITY);
    broken.set(w.numel() / 2, NAN);
    Tolerance tolerance = for_sums_of(1200);
    expect_like_reference(SG_BOTH(conv2d), DType::f32, one(result_shape(c), DType::f32), tolerance, x, w, none, c.args);
    expect_like_reference(SG_BOTH(conv2d), DType::f32, one(result_shape(c), DType::f32), tolerance, x, broken, none,
                          c.args);
    expect_like_reference(SG_BOTH(conv2d_backward_input), DType::f32, one(c.x, DType::f32), tolerance, dy, broken,
                          c.args);
    dy.set(dy.numel() / 2, NAN);
    expect_like_reference(SG_BOTH(conv2d_backward_weight), DType::f32, wanted, tolerance, dy, x, c.args);
  }
}

TEST(CpuConvolution, OfManySamplesMeetsNumbersThatAreNotFiniteInPaddingToo) {
  const Case& c = kManySamples[0];
  Buffer x = Buffer::random(c.x, DType::f32, 1, 2), dy = Buffer::random(result_shape(c), DType::f32, 1, 2, 3), none;
  int64_t weights = Buffer(c.w, DType::f32).numel();
  for (auto [at, value] : {std::pair(int64_t(0), INFINITY), {weights / 2, -INFINITY}, {weights - 1, NAN}}) {
    Buffer w = Buffer::random(c.w, DType::f32, 1, 2, 2);
    w.set(at, value);
    expect_like_reference(SG_BOTH(conv2d), DType::f32, one(result_shape(c), DType::f32), for_sums_of(300), x, w, none,
                          c.args);
    expect_like_reference(SG_BOTH(conv2d_backward_input), DType::f32, one(c.x, DType::f32), for_sums_of(300), dy, w,
                          c.args);
  }
}

}  // namespace
}  // namespace shardgrad::test
