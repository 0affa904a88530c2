// A sum and its norm, as they stand in every block of a transformer: one kernel, one node with two results.

#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// x + residual and its norm. Both summands get the gradient of the sum, and what comes through the norm is added to it
// by the kernel that makes that: in the memory of the sum's gradient where nobody else holds it.
struct AddNorm : Node {
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) final {
    std::span<GradSlot> summands = dx.first(2), scales = dx.subspan(2);
    Out both = unwanted();
    if (!dy[1].defined()) {
      both.tensor = dy[0];
      for (GradSlot& slot : scales)
        if (slot.wanted()) launch(kernels::fill, dy[0], slot.write(), 0.0);
    } else {
      if (std::ranges::any_of(summands, &GradSlot::wanted)) both = onto(dy[0], dy[1]);
      through_norm(dy[1], both, scales);
    }
    for (GradSlot& slot : summands)
      if (slot.wanted()) slot.alias(both.tensor);
  }
  virtual void through_norm(const Tensor& dy, const Out& to, std::span<GradSlot> scales) = 0;

 private:
  static Out onto(const Tensor& dsum, const Tensor& dy) {
    if (dsum.defined() && dsum.unique()) return out(dsum, 1);
    Out to = out(empty_like(dy), dsum.defined() ? 1 : 0);
    if (dsum.defined()) launch(kernels::copy, dsum, out(to.tensor), dsum);
    return to;
  }
};

struct AddLayerNorm final : AddNorm {
  const char* name() const override { return "add_layer_norm"; }
  void through_norm(const Tensor& dy, const Out& to, std::span<GradSlot> scales) override {
    launch(kernels::layer_norm_backward, dy, to, destination(scales[0]), destination(scales[1]), dy, saved(0), saved(1),
           saved(2), saved(3));
  }
};

struct AddRmsNorm final : AddNorm {
  const char* name() const override { return "add_rms_norm"; }
  void through_norm(const Tensor& dy, const Out& to, std::span<GradSlot> scales) override {
    launch(kernels::rms_norm_backward, dy, to, destination(scales[0]), dy, saved(0), saved(1), saved(2));
  }
};

// Whether a sum and its norm are two operations: autocast keeps the sum in 16 bits and computes its norm in f32, or the
// sum needs no gradient and the norm does.
bool are_two(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias) {
  return should_widen(x, weight, bias) || (will_record(weight, bias) && !will_record(x, residual));
}

void check_sum(const char* op, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias) {
  SG_CHECK(x.ndim() >= 1, op, ": needs at least one dimension, got a scalar");
  check_same_kind(op, x, residual);
  SG_CHECK(x.shape() == residual.shape(), op, ": input ", x.shape(), " and residual ", residual.shape(),
           " are added element by element; they must have one shape");
  check_scale(op, x, -1, weight, bias);
}

// The sum is an output, and kept as one.
template <class N>
void record_sum(const AddNormResult& result, std::span<const Tensor> inputs, const Tensor& mean, const Tensor& rstd) {
  const Tensor outputs[] = {result.sum, result.y};
  auto* node = record_all<N>(outputs, inputs);
  if (!node) return;
  node->save_output(result.sum);
  node->save(inputs[2]);
  if (mean.defined()) node->save(mean);
  node->save(rstd);
}

}  // namespace

AddNormResult add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                             double eps) {
  if (should_promote(x, residual)) return add_layer_norm(widened(x), widened(residual), weight, bias, eps);
  if (are_two(x, residual, weight, bias)) {
    Tensor sum = add(x, residual);
    return {sum, layer_norm(sum, weight, bias, eps)};
  }
  check_sum("add_layer_norm", x, residual, weight, bias);
  Tensor sum = empty_like(x), y = empty_like(x), rows = as_rows(sum);
  Tensor mean = empty({rows.size(0)}, {sum_dtype(x.dtype()), x.device()}), rstd = empty_like(mean);
  launch(kernels::add_layer_norm, x, out(sum), out(y), out(mean), out(rstd), x, residual, weight, bias, eps);
  const Tensor inputs[] = {x, residual, weight, bias};
  record_sum<AddLayerNorm>({sum, y}, inputs, mean, rstd);
  return {sum, y};
}

AddNormResult add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
  if (should_promote(x, residual)) return add_rms_norm(widened(x), widened(residual), weight, eps);
  if (are_two(x, residual, weight, Tensor())) {
    Tensor sum = add(x, residual);
    return {sum, rms_norm(sum, weight, eps)};
  }
  check_sum("add_rms_norm", x, residual, weight, Tensor());
  Tensor sum = empty_like(x), y = empty_like(x);
  Tensor rstd = empty({as_rows(sum).size(0)}, {sum_dtype(x.dtype()), x.device()});
  launch(kernels::add_rms_norm, x, out(sum), out(y), out(rstd), x, residual, weight, eps);
  const Tensor inputs[] = {x, residual, weight};
  record_sum<AddRmsNorm>({sum, y}, inputs, Tensor(), rstd);
  return {sum, y};
}

}  // namespace shardgrad
