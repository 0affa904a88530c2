// Softmax(scale · Q · Kᵀ) · V of every head, with nothing as large as the scores in memory: the kernel knows where
// heads lie in a row of qkv, so nothing is split, permuted or copied, and backward makes the weights again from one
// number per row and head. tests/autograd/attention_test.cpp has the same of operations on whole matrices.

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
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

void check_options(const AttentionOptions& options) {
  SG_CHECK(options.heads > 0 && options.kv_heads >= 0, "attention: there cannot be ", options.heads, " heads and ",
           options.kv_heads, " kv_heads");
  SG_CHECK(options.kv_heads == 0 || options.heads % options.kv_heads == 0, "attention: ", options.heads,
           " heads cannot share ", options.kv_heads, " kv_heads evenly; heads must be a multiple of kv_heads");
  SG_CHECK(std::isfinite(options.scale) && options.scale >= 0, "attention: scale ", options.scale,
           " is not a positive number, or 0 for 1/√d");
  SG_CHECK(options.dropout >= 0 && options.dropout < 1, "attention: dropout ", options.dropout,
           " is not within [0, 1)");
  SG_CHECK(options.first_sample >= 0, "attention: first_sample ", options.first_sample, " is negative");
}

void check_attention(const Tensor& qkv, const Tensor& starts, int64_t heads, int64_t kv_heads) {
  check_floating("attention", qkv);
  int64_t parts = heads + 2 * kv_heads;
  SG_CHECK(qkv.ndim() == 3 && qkv.size(2) > 0 && qkv.size(2) % parts == 0, "attention: qkv ", qkv.shape(),
           " does not fit ", heads, " heads and ", kv_heads, " kv_heads; it must be (samples, places, ", parts,
           " · d)");
  if (!starts.defined()) return;
  SG_CHECK(starts.dtype() == DType::i64, "attention: starts must be i64, got ", starts, " for qkv ", qkv.shape(),
           "; convert them with .to(dtype)");
  SG_CHECK(starts.ndim() == 1 && starts.size(0) == qkv.size(0), "attention: starts ", starts.shape(),
           " do not fit qkv ", qkv.shape(), "; they must be (", qkv.size(0), ")");
  SG_CHECK(starts.device() == qkv.device(), "attention: qkv ", qkv.shape(), " is on ", qkv.device(), ", starts ",
           starts.shape(), " on ", starts.device(), "; move one with .to(device)");
}

}  // namespace

Tensor attention(const Tensor& qkv, const Tensor& starts, const AttentionOptions& options) {
  if (should_lower(qkv)) return attention(lowered(qkv), starts, options);
  check_options(options);
  int64_t heads = options.heads, kv_heads = options.kv_heads == 0 ? heads : options.kv_heads;
  check_attention(qkv, starts, heads, kv_heads);
  int64_t samples = qkv.size(0), places = qkv.size(1), depth = qkv.size(2) / (heads + 2 * kv_heads);
  kernels::AttentionArgs args{.heads = heads,
                              .kv_heads = kv_heads,
                              .scale = options.scale == 0 ? 1 / std::sqrt(double(depth)) : options.scale,
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
    MaskSource mask = next_mask(name);
    options.seed = mask.seed, options.stream = mask.stream, options.first_sample = mask.first_sample;
  }
  return attention(qkv, starts, options);
}

}  // namespace shardgrad
