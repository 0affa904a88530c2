#include <cmath>
#include <numbers>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/autograd/rope_table.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// The transposed rotation is the inverse one. It takes dy's place in memory when nobody else holds dy.
struct Rope final : Node {
  const char* name() const override { return "rope"; }
  kernels::RopeArgs inverse{};
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &table = saved(0), &starts = saved(1);
    if (!dy[0].unique()) return launch(kernels::rope, dy[0], dx[0].write(), dy[0], table, starts, inverse);
    launch(kernels::rope, dy[0], out(dy[0]), dy[0], table, starts, inverse);
    dx[0].alias(dy[0]);
  }
};

void check_table(const Tensor& qkv, const Tensor& table) {
  SG_CHECK(table.dtype() == sum_dtype(qkv.dtype()) && table.device() == qkv.device() && !table.requires_grad(),
           "rope: table ", table, " does not fit input ", qkv, "; it must be without grad, of dtype ",
           sum_dtype(qkv.dtype()), " and on the input's device; convert it with .to(dtype) or .to(device)");
}

void check_starts_of(const Tensor& qkv, const Tensor& starts) {
  if (!starts.defined()) return;
  SG_CHECK(starts.dtype() == DType::i64 && starts.ndim() == 1 && starts.size(0) == qkv.size(0), "rope: starts ", starts,
           " do not fit input ", qkv.shape(), "; they must be i64 (", qkv.size(0), "); convert them with .to(dtype)");
  SG_CHECK(starts.device() == qkv.device(), "rope: starts ", starts.shape(), " are on ", starts.device(),
           ", the input ", qkv.shape(), " on ", qkv.device(), "; move one with .to(device)");
}

void check_frequencies(int64_t head_dim, const RopeOptions& options) {
  SG_CHECK(head_dim > 0 && head_dim % 2 == 0, "rope_table: head_dim ", head_dim, " is no positive even number");
  SG_CHECK(options.theta > 0, "rope_table: theta ", options.theta, " is not positive");
  if (!options.scaling) return;
  const Llama3Scaling& s = *options.scaling;
  SG_CHECK(s.factor > 0 && s.original_positions > 0 && s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor,
           "rope_table: scaling by factor ", s.factor, " from ", s.original_positions,
           " positions with low_freq_factor ", s.low_freq_factor, " and high_freq_factor ", s.high_freq_factor,
           ": all must be positive, and the last one above the one before");
}

double scaled(double frequency, const Llama3Scaling& s) {
  double turns = double(s.original_positions) * frequency / (2 * std::numbers::pi);  // within the original positions
  if (turns > s.high_freq_factor) return frequency;
  if (turns < s.low_freq_factor) return frequency / s.factor;
  double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - kept) * frequency / s.factor + kept * frequency;
}

}  // namespace

Tensor rope(const Tensor& qkv, const Tensor& table, int64_t heads, int64_t kv_heads, const Tensor& starts,
            int64_t first_position) {
  check_floating("rope", qkv);
  check_table(qkv, table);
  bool fits = heads > 0 && kv_heads > 0 && qkv.ndim() == 3 && table.ndim() == 2 && table.size(1) % 2 == 0 &&
              qkv.size(2) == (heads + 2 * kv_heads) * table.size(1);
  SG_CHECK(fits, "rope: an input of shape ", qkv.shape(), " does not have rows of ", heads, " query, ", kv_heads,
           " key and ", kv_heads, " value heads, each as wide as the table ", table.shape());
  SG_CHECK(first_position >= 0 && first_position <= table.size(0) - qkv.size(1), "rope: the rows of an input of shape ",
           qkv.shape(), ", from ", first_position, " on, are not all in the table ", table.shape(), "; make it longer");
  check_starts_of(qkv, starts);
  kernels::RopeArgs args{heads + kv_heads, first_position};
  Tensor y = empty_like(qkv);
  launch(kernels::rope, qkv, out(y), qkv, table, starts, args);
  if (auto* node = record<Rope>(y, qkv)) {
    node->inverse = {args.heads, first_position, true};
    node->save(table, starts);
  }
  return y;
}

Tensor rope_table(int64_t positions, int64_t head_dim, const RopeOptions& options, TensorOptions tensor) {
  check_frequencies(head_dim, options);
  SG_CHECK(tensor.dtype == DType::f32 || tensor.dtype == DType::f64, "rope_table: the dtype must be f32 or f64, got ",
           tensor.dtype);
  Shape shape{positions, head_dim};
  if (tensor.device.value_or(context().default_device()) == kMeta) return empty(shape, tensor);
  std::vector<double> numbers(static_cast<size_t>(shape.numel()));
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(options.theta, -2.0 * double(i) / double(head_dim));
    if (options.scaling) frequency = scaled(frequency, *options.scaling);
    for (int64_t p = 0; p < positions; ++p) {
      numbers[size_t(p * head_dim + i)] = std::cos(double(p) * frequency);
      numbers[size_t(p * head_dim + head_dim / 2 + i)] = std::sin(double(p) * frequency);
    }
  }
  if (tensor.dtype == DType::f64) return from_vector(numbers, shape, tensor);
  return from_vector(std::vector<float>(numbers.begin(), numbers.end()), shape, tensor);
}

}  // namespace shardgrad
