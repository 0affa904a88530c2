#pragma once
// Reductions, running sums and orders (autograd/ops.h). Dimensions may be negative; `keepdim` keeps them with extent 1.

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include <shardgrad/autograd/ops/truth.h>

namespace shardgrad {

/// Dimensions to reduce over, in braces or as a span: {0, -1}. Each once, and at least one. More than a tensor can have
/// are refused by who uses them.
class Dims {
 public:
  Dims(std::initializer_list<int> dims) : Dims(std::span(dims.begin(), dims.size())) {}
  Dims(std::span<const int> dims) : count_(dims.size()) {
    std::ranges::copy(dims.first(std::min(count_, dims_.size())), dims_.begin());
  }
  operator std::span<const int>() const { return {dims_.data(), std::min(count_, dims_.size())}; }
  const int* begin() const { return dims_.data(); }
  const int* end() const { return begin() + std::min(count_, dims_.size()); }

 private:
  std::array<int, kMaxDims + 1> dims_{};  // one more than can be right
  size_t count_;
};

/// Sums of integers are i64; means are of floating dtypes only.
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, int dim, bool keepdim = false);
Tensor sum(const Tensor& x, Dims dims, bool keepdim = false);
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int dim, bool keepdim = false);
Tensor mean(const Tensor& x, Dims dims, bool keepdim = false);
struct ValuesAndIndex {
  Tensor values, index;  ///< index: i64, where along the dimension they are
};
/// index: the first maximum, which has the gradient. NaN counts as largest.
ValuesAndIndex max(const Tensor& x, int dim, bool keepdim = false);
/// index: the first minimum. NaN counts as smallest.
ValuesAndIndex min(const Tensor& x, int dim, bool keepdim = false);
/// The largest element, NaN if there is one; equal ones have equal parts of the gradient.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// The same over dimensions.
Tensor amax(const Tensor& x, int dim, bool keepdim = false);
Tensor amax(const Tensor& x, Dims dims, bool keepdim = false);
Tensor amin(const Tensor& x, int dim, bool keepdim = false);
Tensor amin(const Tensor& x, Dims dims, bool keepdim = false);
Tensor argmax(const Tensor& x, int dim, bool keepdim = false);
Tensor argmin(const Tensor& x, int dim, bool keepdim = false);
/// Of the largest element of all, as if x had one dimension.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);
/// The Euclidean norm of all elements, or along dimensions; its gradient at 0 is 0.
Tensor norm(const Tensor& x);
Tensor norm(const Tensor& x, int dim, bool keepdim = false);
Tensor norm(const Tensor& x, Dims dims, bool keepdim = false);
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);
/// Σ (x - mean)² / (n - correction): of a sample with 1, of a population with 0. ∞ where n ≤ correction,
/// and NaN where all elements are equal, too.
Tensor var(const Tensor& x, double correction = 1);
Tensor var(const Tensor& x, int dim, double correction = 1, bool keepdim = false);
Tensor var(const Tensor& x, Dims dims, double correction = 1, bool keepdim = false);
/// √var, rounded once.
Tensor std(const Tensor& x, double correction = 1);
Tensor std(const Tensor& x, int dim, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, Dims dims, double correction = 1, bool keepdim = false);
/// The product, in f64, rounded once; of integers i64.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int dim, bool keepdim = false);
/// log Σ exp(x) without overflow; of nothing -∞.
Tensor logsumexp(const Tensor& x, int dim, bool keepdim = false);
Tensor logsumexp(const Tensor& x, Dims dims, bool keepdim = false);
/// Whether some, or each, element is not 0: u8.
Truth any(const Tensor& x);
Truth any(const Tensor& x, int dim, bool keepdim = false);
Truth any(const Tensor& x, Dims dims, bool keepdim = false);
Truth all(const Tensor& x);
Truth all(const Tensor& x, int dim, bool keepdim = false);
Truth all(const Tensor& x, Dims dims, bool keepdim = false);
/// How many elements are not 0: i64.
Tensor count_nonzero(const Tensor& x);
/// Running sums along dim, in f64, rounded once each; of integers i64.
Tensor cumsum(const Tensor& x, int dim);

/// The elements along dim in order, and where they were. NaN counts as largest; equal ones keep their order.
ValuesAndIndex sort(const Tensor& x, int dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false);
/// The k largest along dim, the largest first; the smallest where `largest` is false.
ValuesAndIndex topk(const Tensor& x, int64_t k, int dim = -1, bool largest = true);

}  // namespace shardgrad
