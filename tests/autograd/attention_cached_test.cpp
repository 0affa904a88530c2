// attention_cached: rows in pieces have the bits of attention of all of them, on every device and dtype, and nothing of
// the caches but the appended places is written.

#include <cmath>

#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

struct Caching {
  AttentionOptions options;
  int64_t samples, places, depth;
  std::vector<int64_t> starts = {};

  int64_t kv_heads() const { return options.kv_heads ? options.kv_heads : options.heads; }
  Tensor qkv(TensorOptions like) const {
    return upstream_like(empty({samples, places, (options.heads + 2 * kv_heads()) * depth}, like), 1);
  }
  Tensor starts_on(Device device) const {
    if (starts.empty()) return {};
    return from_vector<int64_t>(starts, {samples}).to(device);
  }
  Tensor cache(int64_t length, TensorOptions like) const {
    return full({samples, kv_heads(), length, depth}, NAN, like);
  }
  /// The rows in pieces of these sizes, then one by one.
  Tensor in_pieces(const Tensor& qkv, const std::vector<int64_t>& sizes) const {
    Tensor keys = cache(places, {qkv.dtype(), qkv.device()}), values = clone(keys);
    std::vector<Tensor> y;
    for (int64_t first = 0, n = 0; first < places; first += n) {
      n = y.size() < sizes.size() ? sizes[y.size()] : 1;
      Tensor rows = slice(qkv, 1, first, first + n);
      y.push_back(attention_cached(rows, keys, values, first, starts_on(qkv.device()), options));
    }
    return cat(y, 1);
  }
};

TEST(CachedAttention, RowsInAnyPiecesHaveTheBitsOfAttentionOnEveryDevice) {
  Context context({.threads = 2});
  std::vector<Device> devices = kernel_devices();
  devices.insert(devices.begin(), {kCpu, kAcc});
  for (Device device : devices)
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (const std::vector<int64_t>& starts : {std::vector<int64_t>{}, {0, 3}}) {
        Caching c{{.heads = 4, .kv_heads = 2}, 2, device == kCpu ? 40 : 12, 8, starts};
        Tensor qkv = c.qkv({dtype, device});
        std::vector<uint8_t> whole = bits(attention(qkv, c.starts_on(device), c.options));
        for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5}, {4, 2, 3}})
          EXPECT_EQ(bits(c.in_pieces(qkv, sizes)), whole) << dtype << " on " << device;
      }
}

TEST(CachedAttention, ALongCacheHasTheSameBitsOnAnyNumberOfThreads) {
  Caching c{{.heads = 6, .kv_heads = 1}, 1, 800, 64};
  std::vector<uint8_t> whole;
  for (int threads : {1, 2, 3}) {
    Context context({.threads = threads});
    Tensor qkv = c.qkv({});
    if (whole.empty()) whole = bits(slice(attention(qkv, Tensor(), c.options), 1, 797, 800));
    EXPECT_EQ(bits(slice(c.in_pieces(qkv, {797}), 1, 797, 800)), whole) << threads;
  }
}

TEST(CachedAttention, WritesTheAppendedPlacesAndNoOther) {
  Context context;
  Caching c{{.heads = 2, .kv_heads = 1}, 2, 6, 4};
  Tensor qkv = c.qkv({}), keys = c.cache(9, {}), values = clone(keys);
  uint64_t before = keys.version();
  attention_cached(slice(qkv, 1, 0, 4), keys, values, 0, Tensor(), c.options);
  attention_cached(slice(qkv, 1, 4, 6), keys, values, 4, Tensor(), c.options);
  EXPECT_GT(keys.version(), before) << "a write that backward would miss";
  std::vector<double> rows = test::values(qkv), k = test::values(keys), v = test::values(values);
  for (int64_t i = 0; i < keys.numel(); ++i) {
    int64_t sample = i / 36, place = i / 4 % 9, from = (sample * 6 + place) * 16 + i % 4;
    if (place >= 6) {
      EXPECT_TRUE(std::isnan(k[size_t(i)]) && std::isnan(v[size_t(i)])) << i;
      continue;
    }
    EXPECT_EQ(k[size_t(i)], rows[size_t(from + 8)]) << i;
    EXPECT_EQ(v[size_t(i)], rows[size_t(from + 12)]) << i;
  }
}

TEST(CachedAttention, RunsOnMetaAndInAutocast) {
  Context context;
  Caching c{{.heads = 2}, 2, 3, 8};
  Tensor meta = c.in_pieces(empty({2, 3, 48}, kMeta), {2});
  EXPECT_EQ(meta.shape(), Shape({2, 3, 16}));
  Autocast scope(DType::bf16);
  Tensor qkv = c.qkv({}), keys = c.cache(3, DType::bf16), values = clone(keys);
  EXPECT_EQ(attention_cached(qkv, keys, values, 0, Tensor(), c.options).dtype(), DType::bf16);
}

TEST(CachedAttention, WhatCannotBeIsRefused) {
  Context context;
  AttentionOptions two{.heads = 2};
  Tensor qkv = zeros({2, 3, 24}), keys = zeros({2, 2, 5, 4}), values = zeros({2, 2, 5, 4});
  auto call = [&](const Tensor& rows, const Tensor& k, int64_t first, AttentionOptions options = {.heads = 2}) {
    return attention_cached(rows, k, values, first, Tensor(), options);
  };
  EXPECT_REFUSED(call(qkv, keys, 3), "attention_cached", "full", "5 places", "3 from 3");
  EXPECT_REFUSED(call(qkv, keys, -1), "attention_cached", "-1");
  EXPECT_REFUSED(call(qkv, keys, INT64_MAX), "attention_cached", "3 from 9223372036854775807");
  EXPECT_REFUSED(call(qkv, zeros({2, 1, 5, 4}), 0), "[2, 1, 5, 4]", "(2, 2, places, 4)");
  EXPECT_REFUSED(call(qkv, zeros({2, 2, 5, 4}, DType::bf16), 0), "bf16", "same dtype");
  EXPECT_REFUSED(call(qkv, zeros({2, 2, 6, 4}), 0), "[2, 2, 6, 4]", "[2, 2, 5, 4]");
  EXPECT_REFUSED(call(qkv, keys, 0, {.heads = 2, .dropout = 0.1}), "dropout");
  EXPECT_REFUSED(call(qkv, keys, 0, {.heads = 5}), "attention_cached", "5 heads");
  Tensor trained = zeros({2, 3, 24}).set_requires_grad();
  EXPECT_REFUSED(call(trained, keys, 0), "requires grad", "NoGrad");
  NoGrad no_grad;
  EXPECT_EQ(call(trained, keys, 0).shape(), Shape({2, 3, 8}));
  Tensor late = from_vector<int64_t>({0, 6}, {2});
  EXPECT_REFUSED(attention_cached(slice(qkv, 1, 0, 1), keys, values, 3, late, two), "start of sample 1", "6", "[0, 5)");
}

}  // namespace
}  // namespace shardgrad::test
