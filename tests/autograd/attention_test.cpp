// Attention against the same of operations on whole matrices, and what it promises beside: nothing of later places,
// of other samples or of threads in any bit, and nothing as large as the scores in memory.

#include <shardgrad/autograd/recompute.h>
#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

/// Multiples of 1/64, which f32 and f64 have in common.
Tensor rows_of_heads(int64_t samples, int64_t places, const AttentionOptions& options, int64_t depth,
                     TensorOptions like = {}) {
  int64_t parts = options.heads + 2 * (options.kv_heads ? options.kv_heads : options.heads);
  return upstream_like(empty({samples, places, parts * depth}, like), 1);
}

// Heads `first`, … of qkv as (samples, count, places, depth).
Tensor heads_of(const Tensor& qkv, int64_t first, int64_t count, int64_t depth) {
  Tensor part = slice(qkv, 2, first * depth, (first + count) * depth);
  return permute(reshape(part, {qkv.size(0), qkv.size(1), count, depth}), {0, 2, 1, 3});
}

// 1 where query i of a sample sees key j: (samples, 1, places, places).
Tensor seen_keys(int64_t places, const std::vector<int64_t>& starts, TensorOptions options) {
  std::vector<double> seen;
  for (int64_t start : starts)
    for (int64_t i = 0; i < places; ++i)
      for (int64_t j = 0; j < places; ++j) seen.push_back(j >= start && j <= i);
  return from_vector(seen, {int64_t(starts.size()), 1, places, places}, {DType::f64, kCpu}).to(options.dtype);
}

/// What the operation is, of operations on matrices of T² elements.
Tensor composed_attention(const Tensor& qkv, std::vector<int64_t> starts, const AttentionOptions& options) {
  int64_t samples = qkv.size(0), places = qkv.size(1), heads = options.heads;
  int64_t shared = options.kv_heads ? options.kv_heads : heads, depth = qkv.size(2) / (heads + 2 * shared);
  starts.resize(size_t(samples));
  Tensor seen = seen_keys(places, starts, {qkv.dtype(), qkv.device()});
  auto for_every_head = [&](const Tensor& x) {
    Tensor grouped = reshape(x, {samples, shared, 1, places, depth});
    return reshape(expand(grouped, {samples, shared, heads / shared, places, depth}), {samples, heads, places, depth});
  };
  Tensor q = heads_of(qkv, 0, heads, depth), k = for_every_head(heads_of(qkv, heads, shared, depth));
  Tensor v = for_every_head(heads_of(qkv, heads + shared, shared, depth));
  double scale = options.scale ? options.scale : 1 / std::sqrt(double(depth));
  Tensor weights = softmax(matmul(q, k, false, true) * scale + affine(seen, 1e30, -1e30));
  weights = dropout(weights, options.dropout, options.seed, options.stream, options.first_sample);
  return reshape(permute(matmul(mul(weights, seen), v), {0, 2, 1, 3}), {samples, places, heads * depth});
}

struct Attended {
  Tensor y, gradient;
};
template <class Function> Attended attend(const Tensor& numbers, const Function& function) {
  Tensor qkv = numbers.detach().set_requires_grad(), y = function(qkv);
  y.backward(upstream_like(y, 2));
  return {y.detach(), qkv.grad()};
}
Tensor starts_tensor(const std::vector<int64_t>& starts) {
  return starts.empty() ? Tensor() : from_vector<int64_t>(starts, {int64_t(starts.size())});
}

void expect_composed(int64_t samples, int64_t places, int64_t depth, const AttentionOptions& options,
                     const std::vector<int64_t>& starts = {}) {
  Attended expected = attend(rows_of_heads(samples, places, options, depth, DType::f64),
                             [&](const Tensor& qkv) { return composed_attention(qkv, starts, options); });
  for (auto [dtype, tolerance] : {std::pair(DType::f32, 1e-6), {DType::f64, 1e-12}}) {
    std::string what = concat(dtype, ", ", places, " places, depth ", depth, ", ", options.kv_heads, " kv_heads");
    Attended actual = attend(rows_of_heads(samples, places, options, depth, dtype),
                             [&](const Tensor& qkv) { return attention(qkv, starts_tensor(starts), options); });
    expect_close(values(actual.y), values(expected.y), tolerance, "result, " + what);
    expect_close(values(actual.gradient), values(expected.gradient), tolerance, "gradient, " + what);
  }
}

TEST(Attention, IsTheComposedFormAtEverySize) {
  Context context;
  for (int64_t places : {1, 2, 3, 5, 11, 12, 13, 16, 17, 24, 31, 32, 33, 47, 48, 49, 64, 65})
    for (int64_t depth : {8, 16, 20, 64}) expect_composed(1, places, depth, {.heads = 2});
}

TEST(Attention, SharedHeadsStartsAndDropoutAreThoseOfTheComposedForm) {
  Context context;
  for (int64_t kv_heads : {1, 2, 4})
    for (double p : {0.0, 0.4})
      for (const std::vector<int64_t>& starts : {std::vector<int64_t>{}, {0, 3}, {19, 1}}) {
        AttentionOptions options{.heads = 4, .kv_heads = kv_heads, .dropout = p, .seed = 7, .stream = 9};
        options.first_sample = 5;
        expect_composed(2, 19, 8, options, starts);
        options.scale = 0.7;
        expect_composed(2, 19, 8, options, starts);
      }
}

// Rows before `kept` have the bits that they have when the others are changed, and when there are no others.
void expect_causal(const AttentionOptions& options, int64_t places, int64_t depth, TensorOptions where,
                   std::initializer_list<int64_t> all_kept) {
  int64_t kv_heads = options.kv_heads ? options.kv_heads : options.heads;
  int64_t width = (options.heads + 2 * kv_heads) * depth;
  Tensor whole = rows_of_heads(1, places, options, depth, where), changed = clone(whole);
  for (int64_t kept : all_kept) {
    fill_(reshape(changed, {places, width}).rows(kept, places), 3);
    Tensor alone = reshape(reshape(whole, {places, width}).rows(0, kept), {1, kept, width});
    auto first = [&](const Tensor& qkv) {
      return bits(reshape(attention(qkv, Tensor(), options), {-1, options.heads * depth}).rows(0, kept));
    };
    std::vector<uint8_t> expected = first(whole);
    std::string what = concat(kept, " of ", places, " places, depth ", depth, ", ", where.dtype, " on ", *where.device);
    EXPECT_EQ(first(changed), expected) << what;
    EXPECT_EQ(first(alone), expected) << what << ", alone";
    copy_into(changed, whole);
  }
}

TEST(Attention, NoBitOfARowDependsOnLaterOnes) {
  Context context;
  std::vector<Device> devices = kernel_devices();
  devices.insert(devices.begin(), {kCpu, kAcc});
  for (Device device : devices)
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      expect_causal({.heads = 2, .kv_heads = 1}, device == kCpu ? 70 : 20, 8, {dtype, device}, {1, 13, 19});
}

// Heads that a GPU takes by tiles of 64 places, of each width that there is.
TEST(Attention, NoBitOfARowInATileDependsOnLaterOnes) {
  Context context;
  for (Device device : kernel_devices())
    for (DType dtype : {DType::bf16, DType::f16})
      for (int64_t depth : {16, 64, 80}) expect_causal({.heads = 1}, 70, depth, {dtype, device}, {13, 64, 65});
}

TEST(Attention, AnyNumberOfThreadsGivesTheSameBits) {
  AttentionOptions options{.heads = 6, .kv_heads = 3, .dropout = 0.1, .seed = 1, .stream = 2};
  std::vector<std::vector<uint8_t>> results, gradients;
  for (int threads : {1, 2, 3}) {
    Context context({.threads = threads});
    Attended run = attend(rows_of_heads(2, 101, options, 32), [&](const Tensor& qkv) {
      return attention(qkv, starts_tensor({0, 17}), options);
    });
    results.push_back(bits(run.y));
    gradients.push_back(bits(run.gradient));
  }
  for (size_t i : {1, 2}) {
    EXPECT_EQ(results[i], results[0]);
    EXPECT_EQ(gradients[i], gradients[0]);
  }
}

TEST(Attention, TheMaskIsAFunctionOfTheGlobalSample) {
  Context context;
  AttentionOptions options{.heads = 2, .dropout = 0.5, .seed = 3, .stream = 4, .first_sample = 8};
  Tensor numbers = rows_of_heads(5, 7, options, 8);
  auto run = [&](const Tensor& qkv) { return attention(qkv, Tensor(), options); };
  Tensor whole = run(numbers);
  for (int64_t cut : {1, 3}) {
    options.first_sample = 8;
    Tensor head = run(numbers.rows(0, cut));
    options.first_sample = 8 + cut;
    Tensor tail = run(numbers.rows(cut, 5));
    EXPECT_EQ(bits(cat(std::vector{head, tail}, 0)), bits(whole)) << cut;
  }
  options.first_sample = 9;
  EXPECT_NE(bits(run(numbers)), bits(whole));
}

TEST(Attention, APaddedSampleHasTheBitsOfTheSampleAlone) {
  Context context;
  AttentionOptions options{.heads = 3};
  int64_t places = 61, start = 23;
  Tensor padded = rows_of_heads(1, places, options, 16), upstream = upstream_like(empty({1, places, 48}), 2);
  auto rows = [&](const Tensor& x) {
    int64_t width = x.size(2);
    return reshape(reshape(x, {places, width}).rows(start, places), {1, places - start, width});
  };
  auto run = [&](const Tensor& numbers, const Tensor& starts, const Tensor& dy) {
    Tensor qkv = numbers.detach().set_requires_grad(), y = attention(qkv, starts, options);
    y.backward(dy);
    return Attended{y.detach(), qkv.grad()};
  };
  Attended one = run(padded, starts_tensor({start}), upstream), other = run(rows(padded), Tensor(), rows(upstream));
  EXPECT_EQ(bits(rows(one.y)), bits(other.y));
  EXPECT_EQ(bits(rows(one.gradient)), bits(other.gradient));
  EXPECT_EQ(largest(values(reshape(one.y, {places, 48}).rows(0, start))), 0);
  EXPECT_EQ(largest(values(reshape(one.gradient, {places, 144}).rows(0, start))), 0);
}

TEST(Attention, NothingOfTheSquareOfTheLengthIsInMemory) {
  Context context;
  constexpr int64_t kPlaces = 2048, kDepth = 8;
  Tensor qkv = rows_of_heads(1, kPlaces, {}, kDepth).set_requires_grad();
  int64_t held = context.ledger().current(Category::activation), all = context.ledger().current();
  context.ledger().reset_peaks();
  Tensor y = attention(qkv, Tensor(), {});
  EXPECT_EQ(context.ledger().current(Category::activation) - held, kPlaces * (kDepth + 1) * 4) << "y and lse";
  y.backward(ones({1, kPlaces, kDepth}));
  EXPECT_LT(context.ledger().peak() - all, kPlaces * kPlaces) << "not even a byte for each score";
}

TEST(Attention, RecomputeDrawsTheSameMask) {
  auto gradient = [](bool recompute) {
    Context context;
    AttentionOptions options{.heads = 2, .dropout = 0.3};
    Tensor qkv = rows_of_heads(2, 9, options, 8).set_requires_grad();
    auto body = [&](const Tensor& x) {
      Tensor twice = attention(x, Tensor(), options, "a");
      return twice + attention(x, Tensor(), options, "a");
    };
    Tensor y = recompute ? checkpoint(body, qkv) : body(qkv);
    y.backward(upstream_like(y, 2));
    return bits(qkv.grad());
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(Attention, EveryCallUnderANameHasAMaskOfItsOwnAndRanksTheirSamples) {
  Context context;
  AttentionOptions options{.heads = 1, .dropout = 0.5};
  Tensor numbers = rows_of_heads(4, 6, options, 8);
  auto run = [&](const Tensor& qkv, const char* name) { return values(attention(qkv, Tensor(), options, name)); };
  std::vector<double> first = run(numbers, "a");
  EXPECT_NE(run(numbers, "a"), first);
  EXPECT_NE(run(numbers, "b"), first);
  progress() = {.first_sample = 1};
  std::vector<double> rest = run(numbers.rows(1, 4), "a");
  EXPECT_EQ(rest, std::vector<double>(first.begin() + 6 * 8, first.end()));
  options.dropout = 0;
  EXPECT_EQ(run(numbers, "a"), values(attention(numbers, Tensor(), options)));
}

TEST(Attention, WhatDoesNotFitIsRefused) {
  Context context;
  Tensor qkv = zeros({2, 3, 24}), two = zeros({2}, DType::i64);
  AttentionOptions one;
  EXPECT_REFUSED(attention(qkv, Tensor(), {.heads = 5}), "attention", "[2, 3, 24]", "5 heads", "15 · d");
  EXPECT_REFUSED(attention(qkv, Tensor(), {.heads = 3, .kv_heads = 2}), "3 heads", "2 kv_heads", "multiple");
  EXPECT_REFUSED(attention(qkv, Tensor(), {.heads = 0}), "0 heads");
  EXPECT_REFUSED(attention(qkv, Tensor(), {.kv_heads = -1}), "-1 kv_heads");
  EXPECT_REFUSED(attention(qkv, Tensor(), {.scale = -1}), "scale -1");
  EXPECT_REFUSED(attention(qkv, Tensor(), {.scale = NAN}), "scale nan");
  EXPECT_REFUSED(attention(qkv, Tensor(), {.dropout = 1}), "dropout 1", "[0, 1)");
  EXPECT_REFUSED(attention(qkv, Tensor(), {.dropout = -0.1}), "dropout -0.1");
  EXPECT_REFUSED(attention(qkv, Tensor(), {.first_sample = -2}), "first_sample -2");
  EXPECT_REFUSED(attention(zeros({3, 24}), Tensor(), one), "[3, 24]", "samples");
  EXPECT_REFUSED(attention(zeros({2, 3, 0}), Tensor(), one), "[2, 3, 0]");
  EXPECT_REFUSED(attention(zeros({2, 3, 24}, DType::i32), Tensor(), one), "floating", "i32");
  EXPECT_REFUSED(attention(qkv, zeros({2}), one), "starts", "i64", "f32", ".to(dtype)");
  EXPECT_REFUSED(attention(qkv, zeros({3}, DType::i64), one), "starts [3]", "[2, 3, 24]", "(2)");
  EXPECT_REFUSED(attention(qkv, zeros({2, 1}, DType::i64), one), "starts [2, 1]");
  EXPECT_REFUSED(attention(qkv, two.to(kAcc), one), "cpu", "acc", ".to(device)");
  EXPECT_REFUSED(attention(qkv, from_vector<int64_t>({0, 4}, {2}), one), "sample 1", "is 4", "[0, 4)");
}

}  // namespace
}  // namespace shardgrad::test
