#pragma once
// Where elements lie: shapes, parts, indices (autograd/ops.h). Tensors are contiguous, so what does not say that it
// shares memory copies. Dimensions may be negative, counted from the end. Lists are given in braces, or as a span.

#include <concepts>
#include <initializer_list>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// Same elements, another shape; one extent may be -1. Shares memory. As Tensor::view.
Tensor reshape(const Tensor& x, std::initializer_list<int64_t> dims);
Tensor reshape(const Tensor& x, std::span<const int64_t> dims);
Tensor reshape(const Tensor& x, const Shape& shape);
/// Dimension d of the result is dimension dims[d] of x. Copies.
Tensor permute(const Tensor& x, std::initializer_list<int> dims);
Tensor permute(const Tensor& x, std::span<const int> dims);
/// Swaps two dimensions. Copies; matmul takes transposed operands without a copy.
Tensor transpose(const Tensor& x, int a, int b);
/// Elements [begin, end) along dim, every step-th; negative ends count from the back. Shares memory along dim 0 with
/// step 1 (as Tensor::rows), copies otherwise. x.index({Slice(…)}) takes ends beyond the last element for that.
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end, int64_t step = 1);
Tensor cat(std::span<const Tensor> tensors, int dim);
Tensor cat(std::initializer_list<Tensor> tensors, int dim = 0);
/// One after the other along a new dimension.
Tensor stack(std::span<const Tensor> tensors, int dim = 0);
Tensor stack(std::initializer_list<Tensor> tensors, int dim = 0);
/// Parts of the given sizes along dim; shares memory along dim 0 only.
std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int dim);
Tensor expand(const Tensor& x, const Shape& shape);
/// x of two dimensions transposed, which copies; one with fewer as it is.
Tensor t(const Tensor& x);
/// A new dimension of extent 1 at place dim. Shares memory, as squeeze and flatten do.
Tensor unsqueeze(const Tensor& x, int dim);
/// Without dimension dim where its extent is 1; without all that are.
Tensor squeeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x);
/// Dimensions first to last, both included, as one.
Tensor flatten(const Tensor& x, int first = 0, int last = -1);
/// At most `count` parts along dim, all but the last of one size. An empty dimension has `count` empty parts.
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int dim = 0);
/// Element i along dim, without it; negative i counts from the back. Shares memory along dim 0.
Tensor select(const Tensor& x, int dim, int64_t i);
/// The order along these dimensions turned round.
Tensor flip(const Tensor& x, std::initializer_list<int> dims);
Tensor flip(const Tensor& x, std::span<const int> dims);
/// Elements move `by` places along dim, those at the end to the beginning.
Tensor roll(const Tensor& x, int64_t by, int dim);
/// x so many times along each dimension; more numbers than dimensions add new ones in front.
Tensor repeat(const Tensor& x, std::initializer_list<int64_t> times);
Tensor repeat(const Tensor& x, std::span<const int64_t> times);
/// The last two dimensions' elements on and below (above) diagonal number `diagonal`, 0 elsewhere.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);

// --- indices ---------------------------------------------------------------------------------------------------------
// An index out of range is an Error(input); on an asynchronous device it surfaces at the next wait.
/// Elements of x along dim at index (i64, one dimension).
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
/// As torch.gather: index (i64) has x's dimensions and reaches past none of them but dim.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
/// A copy of x with src added at index along dim, as torch.scatter_add; index and src have the same shape.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
/// Rows of table (V, D) at ids (any shape, i64): ids.shape + [D]. Ids are below `rows`, where that is given: what a
/// table has from there on is padding.
Tensor embedding(const Tensor& table, const Tensor& ids, int64_t rows = 0);

/// Python's begin:end:step; what is left out or nullopt reaches to the end. Ends beyond the last element mean it.
struct Slice {
  explicit Slice(std::optional<int64_t> begin = {}, std::optional<int64_t> end = {}, int64_t step = 1)
      : begin(begin), end(end), step(step) {}
  std::optional<int64_t> begin, end;
  int64_t step;
};
/// A new dimension, in Index: Python's None.
inline constexpr std::nullopt_t None = std::nullopt;
/// As many full slices as fill up the dimensions, in Index: Python's `...`.
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis{};

/// One entry of Python's x[…]. A tensor of i64 selects along a dimension, with any shape; several side by side are
/// broadcast and select single elements, x.index({arange(n), labels}), once the host has looked at their values. A
/// tensor of u8 is a mask of the dimensions it has, whose number of ones the host waits for.
class Index {
 public:
  template <std::integral I>
  requires(!std::is_same_v<I, bool>) Index(I i) : entry(int64_t(i)) {}
  Index(Slice slice) : entry(slice) {}
  Index(std::nullopt_t) : entry(std::nullopt) {}
  Index(EllipsisType) : entry(Ellipsis) {}
  Index(Tensor tensor) : entry(std::move(tensor)) {}
  std::variant<int64_t, Slice, std::nullopt_t, EllipsisType, Tensor> entry;
};
/// Python's x[i, j:k, …, index]; Tensor::index and x[{…}] are the same. Shares memory where only leading numbers and
/// one slice with step 1 select.
Tensor index(const Tensor& x, std::initializer_list<Index> indices);
Tensor index(const Tensor& x, std::span<const Index> indices);
/// A copy of x where `values`, broadcast, stand at these indices: what x[…] = values leaves in Python. Differentiable
/// in both. Throws Error(input) when index tensors name an element twice.
Tensor index_put(const Tensor& x, std::initializer_list<Index> indices, const Tensor& values);
Tensor index_put(const Tensor& x, std::span<const Index> indices, const Tensor& values);
Tensor index_put(const Tensor& x, std::initializer_list<Index> indices, Scalar value);
/// The elements where mask (u8, x's shape) is not 0, in one dimension. Waits for the device.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// (n, x.ndim()) i64: the positions of the elements that are not 0, in order. Waits for the device.
Tensor nonzero(const Tensor& x);

}  // namespace shardgrad
