#pragma once
// What several operations share: argument checks, broadcasting backwards, and destinations of gradients.

#include <array>
#include <optional>
#include <span>

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// Throws Error(input) naming `op` unless a and b share dtype and device.
void check_same_kind(const char* op, const Tensor& a, const Tensor& b);
/// Throws Error(input) unless x is of a floating dtype.
void check_floating(const char* op, const Tensor& x);
/// Throws Error(input) naming `op` unless x is of a floating dtype, and weight and bias are undefined or have one
/// number for each of x's `dim`. They must be different tensors, and other ones than x: gradients are written at once.
void check_scale(const char* op, const Tensor& x, int dim, const Tensor& weight, const Tensor& bias);
/// Throws Error(input) unless `index` is i64 and on x's device.
void check_index(const char* op, const Tensor& x, const Tensor& index);
/// The dimension with negatives resolved. Throws Error(input) naming `op` when x has no such dimension.
int check_dim(const char* op, const Tensor& x, int dim);
/// Which dimensions of x are among `dims`. Throws Error(input) naming `op` when none is, x has no such dimension, or
/// one is given twice.
std::array<bool, kMaxDims> check_dims(const char* op, const Tensor& x, std::span<const int> dims);
/// Throws Error(input) naming `op` unless elements [begin, end) are within dimension dim.
void check_range(const char* op, const Tensor& x, int dim, int64_t begin, int64_t end);
/// The uninitialised result of broadcasting a and b, after check_same_kind.
Tensor broadcast_empty(const char* op, const Tensor& a, const Tensor& b, DType dtype);
/// Sends dy, summed over the dimensions that `shape` was broadcast along, to dx; by alias where nothing is summed.
void reduce_to(GradSlot& dx, const Tensor& dy, const Shape& shape);

/// The dtype that sums of `dtype` are taken in: f32 for f16 and bf16.
constexpr DType sum_dtype(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype; }
/// Whether backward will need anything from an operation on these inputs.
template <class... Inputs> bool will_record(const Inputs&... inputs) {
  return (needs_grad(inputs) || ...) && grad_enabled();
}
/// `x` where backward will read it, else nothing: what is not read is not kept.
inline Tensor kept_if(bool read, const Tensor& x) { return read ? x : Tensor(); }
/// The slot's destination, or an unwanted one; for kernels that write several gradients at once.
inline Out destination(GradSlot& slot) { return slot.wanted() ? slot.write() : unwanted(); }
/// The same destination seen in another shape.
inline Out view_of(const Out& to, const Shape& shape) {
  return to.tensor.shape() == shape ? to : out(to.tensor.alias(shape), to.beta);
}
/// The destination ready to be added to: filled with zeros where old values were to be overwritten.
Out accumulating(const Out& to);
/// Where the mask of the next draw of dropout under `name` comes from: the context's seed and Progress.
struct MaskSource {
  uint64_t seed, stream;
  int64_t first_sample;
  Tensor drawn = {};  ///< in a step that is captured: seed and stream (i64, 2) on the device, in each replay its own
};
MaskSource next_mask(std::string_view name);
/// Elements [begin, end) along dim, differentiable, called `op` in errors.
Tensor slice_of(const char* op, const Tensor& x, int dim, int64_t begin, int64_t end);
/// Refuses a negative count, and none where a loss is `recorded` on several ranks. Ranks add up their gradients: means
/// of each rank's part would give gradients as many times too large as there are ranks. `part`: what this rank's part
/// has, `whole`: what the batch has.
void check_loss_count(const char* op, std::optional<double> count, bool recorded, const char* part, const char* whole);
/// Throws Error(input) naming `op` where `dtype` is of integers and has not the number, without its fraction.
void check_held(const char* op, const Scalar& value, DType dtype);
/// A number as an operand beside x. Throws Error(input) naming `op` where x is of integers and the number is none.
Tensor number_beside(const char* op, const Tensor& x, const Scalar& value);
/// x in the dtype that sums of it are taken in: so that what several operations make of 16 bits is rounded once.
Tensor wide(const Tensor& x);
/// 1 where an element is not 0.
Tensor nonzero_flags(const Tensor& x);
/// 1 where a label (i64) is not `ignore_index`.
Tensor counted_labels(const Tensor& labels, int64_t ignore_index);
/// x seen as a matrix (rows, last dimension).
Tensor as_rows(const Tensor& x);

/// y = kernel(x, args…), elementwise.
template <class... Parameters, class... Args>
Tensor of_each(const Slot<OutView, View, Parameters...>& slot, const Tensor& x, Args... args) {
  Tensor y = empty_like(x, slot.name());
  launch(slot, x, out(y), x, args...);
  return y;
}

}  // namespace shardgrad
