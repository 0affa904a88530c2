// Softmax(scale · Q · Kᵀ) · V of every head, with nothing as large as the scores in memory: the kernel knows where
// heads lie in a row of qkv, so nothing is split, permuted or copied, and backward makes the weights again from one
// number per row and head. tests/autograd/attention_test.cpp has the same of operations on whole matrices.

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Attention final : Node {
  const char* name() const override { return "attention"; }
  kernels::AttentionArgs args{};
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &qkv = saved(0), &y = saved(1), &lse = saved(2), &starts = saved(3);
    launch(kernels::attention_backward, dy[0], dx[0].write(), dy[0], qkv, y, lse, starts, args);
  }
};

void check_options(const char* op, const AttentionOptions& options) {
  SG_CHECK(options.heads > 0 && options.kv_heads >= 0, op, ": there cannot be ", options.heads, " heads and ",
           options.kv_heads, " kv_heads");
  SG_CHECK(options.kv_heads == 0 || options.heads % options.kv_heads == 0, op, ": ", options.heads,
           " heads cannot share ", options.kv_heads, " kv_heads evenly; heads must be a multiple of kv_heads");
  SG_CHECK(std::isfinite(options.scale) && options.scale >= 0, op, ": scale ", options.scale,
           " is not a positive number, or 0 for 1/√d");
  SG_CHECK(options.dropout >= 0 && options.dropout < 1, op, ": dropout ", options.dropout, " is not within [0, 1)");
  SG_CHECK(options.first_sample >= 0, op, ": first_sample ", options.first_sample, " is negative");
}

void check_rows(const char* op, const Tensor& qkv, const Tensor& starts, int64_t heads, int64_t kv_heads) {
  check_floating(op, qkv);
  int64_t parts = heads + 2 * kv_heads;
  SG_CHECK(qkv.ndim() == 3 && qkv.size(2) > 0 && qkv.size(2) % parts == 0, op, ": qkv ", qkv.shape(), " does not fit ",
           heads, " heads and ", kv_heads, " kv_heads; it must be (samples, places, ", parts, " · d)");
  if (!starts.defined()) return;
  SG_CHECK(starts.dtype() == DType::i64, op, ": starts must be i64, got ", starts, " for qkv ", qkv.shape(),
           "; convert them with .to(dtype)");
  SG_CHECK(starts.ndim() == 1 && starts.size(0) == qkv.size(0), op, ": starts ", starts.shape(), " do not fit qkv ",
           qkv.shape(), "; they must be (", qkv.size(0), ")");
  SG_CHECK(starts.device() == qkv.device(), op, ": qkv ", qkv.shape(), " is on ", qkv.device(), ", starts ",
           starts.shape(), " on ", starts.device(), "; move one with .to(device)");
}

int64_t kv_heads_of(const AttentionOptions& options) {
  return options.kv_heads == 0 ? options.heads : options.kv_heads;
}
double scale_of(const AttentionOptions& options, int64_t depth) {
  return options.scale == 0 ? 1 / std::sqrt(double(depth)) : options.scale;
}

void check_caches(const Tensor& qkv, const Tensor& keys, const Tensor& values, int64_t first, int64_t kv_heads,
                  int64_t depth) {
  for (const Tensor& cache : {keys, values}) {
    bool fits = cache.ndim() == 4 && cache.size(0) == qkv.size(0) && cache.size(1) == kv_heads &&
                cache.size(3) == depth && cache.dtype() == qkv.dtype() && cache.device() == qkv.device();
    SG_CHECK(fits, "attention_cached: a cache of ", cache, " does not fit qkv ", qkv, "; it must be (", qkv.size(0),
             ", ", kv_heads, ", places, ", depth,
             ") of the same dtype and device; convert one with .to(dtype) or .to(device)");
  }
  SG_CHECK(keys.shape() == values.shape(), "attention_cached: there is a cache ", keys.shape(), " of keys, and one ",
           values.shape(), " of values");
  SG_CHECK(first >= 0 && first <= keys.size(2) - qkv.size(1), "attention_cached: the cache is full: it has ",
           keys.size(2), " places, and ", qkv.size(1), " from ", first, " on are to be added; make a larger one");
}

// Copies heads [head, head + count) of the rows over the cache's places from `first` on.
void append(const Tensor& cache, const Tensor& qkv, int64_t head, int64_t first) {
  int64_t samples = qkv.size(0), rows = qkv.size(1), count = cache.size(1), depth = cache.size(3);
  Tensor part = slice(qkv, 2, head * depth, (head + count) * depth);
  part = rows == 1 ? reshape(part, {samples, count, 1, depth})
                   : permute(reshape(part, {samples, rows, count, depth}), {0, 2, 1, 3});
  launch(kernels::paste, cache, out(cache), part, 2, first);
  cache.bump_version();
}

}  // namespace

Tensor attention(const Tensor& qkv, const Tensor& starts, const AttentionOptions& options) {
  if (should_lower(qkv)) return attention(lowered(qkv), starts, options);
  check_options("attention", options);
  int64_t heads = options.heads, kv_heads = kv_heads_of(options);
  check_rows("attention", qkv, starts, heads, kv_heads);
  int64_t samples = qkv.size(0), places = qkv.size(1), depth = qkv.size(2) / (heads + 2 * kv_heads);
  kernels::AttentionArgs args{.heads = heads,
                              .kv_heads = kv_heads,
                              .scale = scale_of(options, depth),
                              .dropout = options.dropout,
                              .seed = options.seed,
                              .stream = options.stream,
                              .first_sample = options.first_sample};
  Tensor y = empty({samples, places, heads * depth}, {qkv.dtype(), qkv.device()}), lse;
  if (will_record(qkv)) lse = empty({samples, heads, places}, {sum_dtype(qkv.dtype()), qkv.device()});
  launch(kernels::attention, qkv, out(y), out(lse), qkv, starts, args);
  if (auto* node = record<Attention>(y, qkv)) {
    node->args = args;
    node->save(qkv);
    node->save_output(y);
    node->save(lse, starts);
  }
  return y;
}

Tensor attention(const Tensor& qkv, const Tensor& starts, AttentionOptions options, std::string_view name) {
  if (options.dropout > 0) {
    if (Capture::current())
      refuse_in_capture("dropout within attention",
                        "leave it out (for GPT-2 attn_pdrop, or key model.dropout), or do not capture the step");
    MaskSource mask = next_mask(name);
    options.seed = mask.seed, options.stream = mask.stream, options.first_sample = mask.first_sample;
  }
  return attention(qkv, starts, options);
}

Tensor attention_cached(const Tensor& qkv, const Tensor& keys, const Tensor& values, int64_t first,
                        const Tensor& starts, const AttentionOptions& options) {
  if (should_lower(qkv)) return attention_cached(lowered(qkv), keys, values, first, starts, options);
  check_options("attention_cached", options);
  SG_CHECK(options.dropout == 0, "attention_cached: there is no dropout beside a cache, which serves evaluation only");
  SG_CHECK(!will_record(qkv), "attention_cached: qkv ", qkv.shape(),
           " requires grad, and a cache passes none; call it in a scope of NoGrad, or attention");
  int64_t heads = options.heads, kv_heads = kv_heads_of(options);
  check_rows("attention_cached", qkv, starts, heads, kv_heads);
  int64_t depth = qkv.size(2) / (heads + 2 * kv_heads);
  check_caches(qkv, keys, values, first, kv_heads, depth);
  NoGrad scope;
  append(keys, qkv, heads, first);
  append(values, qkv, heads + kv_heads, first);
  if (first == 0) return attention(qkv, starts, options);
  Tensor y = empty({qkv.size(0), qkv.size(1), heads * depth}, {qkv.dtype(), qkv.device()});
  kernels::CachedAttentionArgs args{heads, kv_heads, scale_of(options, depth), first};
  launch(kernels::attention_cached, qkv, out(y), qkv, keys, values, starts, args);
  return y;
}

}  // namespace shardgrad
