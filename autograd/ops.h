#pragma once
// The operations users call. Names and arguments follow PyTorch. Elementwise operations broadcast like NumPy; operands
// must share dtype and device (convert with Tensor::to). All throw Error(input) naming the operation and both shapes.
// Dimensions may be negative, counted from the end.

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/grad_mode.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/kernels/elementwise.h>

namespace shardgrad {

// --- creation (not differentiable) ---------------------------------------------------------------------------------
Tensor full(const Shape& shape, double value, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
/// 0, 1, …, count - 1.
Tensor arange(int64_t count, TensorOptions options = {});
/// A named sequence of random numbers. They are a function of the context's seed and step (Progress), of `name`, of how
/// often the name was drawn from in this step, and of the element's index. So each call gives other numbers, a run that
/// is repeated or resumed gives them again, every rank draws the same, and so does recompute. Ranks that want numbers
/// for their own samples draw for the global batch and take their rows.
class Generator {
 public:
  explicit Generator(std::string_view name);
  /// Standard normal numbers.
  Tensor randn(const Shape& shape, TensorOptions options = {}) const;
  /// Uniform numbers in [0, 1), in steps of 2^-24 (f64: 2^-53).
  Tensor rand(const Shape& shape, TensorOptions options = {}) const;

 private:
  uint64_t stream_;
};
/// The next numbers of Generator(name).
Tensor randn(const Shape& shape, std::string_view name, TensorOptions options = {});
Tensor rand(const Shape& shape, std::string_view name, TensorOptions options = {});
/// Row i has a one in column labels[i]. labels: i64 (N); result: (N, classes). Throws for a label out of range.
Tensor one_hot(const Tensor& labels, int64_t classes, DType dtype = DType::f32);

// --- elementwise ---------------------------------------------------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// Floating dtypes only.
Tensor div(const Tensor& a, const Tensor& b);
/// scale * x + shift. Numbers beside integers (here and in clamp) must be integers themselves; results wrap.
Tensor affine(const Tensor& x, double scale, double shift);
Tensor neg(const Tensor& x);
// exp, log, sqrt, tanh, sigmoid, relu, abs, silu (x · σ(x)): each FUNCTION of kernels/elementwise.h.
#define SG_DECLARE(name, ...) Tensor name(const Tensor& x);
SG_UNARIES(SG_DECLARE, SG_NO_ROW, SG_NO_ROW)
#undef SG_DECLARE
/// x · Φ(x); `tanh_form` selects the tanh approximation (Hendrycks and Gimpel, arXiv 1606.08415).
Tensor gelu(const Tensor& x, bool tanh_form = false);
Tensor pow(const Tensor& x, double exponent);
Tensor clamp(const Tensor& x, double low, double high);
/// condition: u8.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// eq, ne, lt, le, gt, ge: each RELATION. They give u8 and are not differentiable.
#define SG_DECLARE(name, ...) Tensor name(const Tensor& a, const Tensor& b);
SG_RELATIONS(SG_DECLARE)
#undef SG_DECLARE
Tensor cast(const Tensor& x, DType dtype);
/// A copy on another device (the same tensor when it is there already). Differentiable. The copy runs in the order of
/// the devices' compute and has been made when this returns: x may change or go.
Tensor to_device(const Tensor& x, Device device);
/// A copy with its own memory.
Tensor clone(const Tensor& x);

// --- shape ---------------------------------------------------------------------------------------------------------
/// Same elements, another shape; one extent may be -1. Shares memory. As Tensor::view.
Tensor reshape(const Tensor& x, std::initializer_list<int64_t> dims);
Tensor reshape(const Tensor& x, const Shape& shape);
/// Dimension d of the result is dimension dims[d] of x. Copies.
Tensor permute(const Tensor& x, std::initializer_list<int> dims);
/// Swaps two dimensions. Copies; matmul takes transposed operands without a copy.
Tensor transpose(const Tensor& x, int a, int b);
/// Elements [begin, end) along dim. Shares memory along dim 0 (as Tensor::rows), copies otherwise.
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end);
Tensor cat(std::span<const Tensor> tensors, int dim);
/// Parts of the given sizes along dim; shares memory along dim 0 only.
std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int dim);
Tensor expand(const Tensor& x, const Shape& shape);
// An index out of range is an Error(input); on an asynchronous device it surfaces at the next wait.
/// Elements of x along dim at index (i64, one dimension).
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
/// As torch.gather: index (i64) has x's dimensions and reaches past none of them but dim.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
/// A copy of x with src added at index along dim, as torch.scatter_add; index and src have the same shape.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src);
/// Rows of table (V, D) at ids (any shape, i64): ids.shape + [D].
Tensor embedding(const Tensor& table, const Tensor& ids);

// --- reductions ----------------------------------------------------------------------------------------------------
/// Sums of integers are i64; means are of floating dtypes only.
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, int dim, bool keepdim = false);
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int dim, bool keepdim = false);
struct MaxResult {
  Tensor values, index;  ///< index: i64, the first maximum
};
MaxResult max(const Tensor& x, int dim, bool keepdim = false);
Tensor argmax(const Tensor& x, int dim, bool keepdim = false);
/// The Euclidean norm of all elements; its gradient at 0 is 0.
Tensor norm(const Tensor& x);
/// Over the last dimension.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);

// --- layers --------------------------------------------------------------------------------------------------------
/// op(a) · op(b): the last two dimensions multiply; leading ones must match or one operand has none.
Tensor matmul(const Tensor& a, const Tensor& b, bool trans_a = false, bool trans_b = false);
enum class Activation : uint8_t { none, relu, gelu_tanh };
/// activation(x · weightᵀ + bias): x (…, in), weight (out, in), bias (out) or undefined. One GEMM with its epilogue.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation = Activation::none);
/// Over the last dimension; weight and bias (D) or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
/// x / √(mean(x²) + eps) · weight over the last dimension; weight (D) or undefined. LLaMA's normalisation.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-6);
/// silu(gate) · up, (…, F), where a row of gate_up (…, 2F) holds F gates and then F values up.
Tensor swiglu(const Tensor& gate_up);
/// Rotary position embedding (arXiv 2104.09864; pairs i and i + d / 2, as Hugging Face's) of the query and key heads in
/// rows qkv (B, T, (heads + 2 · kv_heads) · d): query heads, key heads, value heads, which stay as they are. `table`
/// (positions, d) is rope_table's, f32 (f64 for f64). Row t of sample b is at position first_position + t - starts[b],
/// or 0 where that is negative; starts: i64 (B), or undefined for 0.
Tensor rope(const Tensor& qkv, const Tensor& table, int64_t heads, int64_t kv_heads, const Tensor& starts = Tensor(),
            int64_t first_position = 0);
struct BatchNormResult {
  Tensor y, mean, rstd;  ///< mean and rstd (C) of this batch, of the biased variance; not differentiable themselves
  Tensor samples = {};   ///< of sync_batch_norm: one element, how many samples all ranks have
};
/// x (N, C) with at least one sample, normalised with the batch's own statistics; weight and bias (C) or undefined.
BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
/// Replaces a tensor by its sum over the ranks that share a batch, in the order of the compute stream.
using SumOverRanks = std::function<void(const Tensor& t)>;
/// The same with the statistics of all ranks' samples, of which a rank may have any number.
BatchNormResult sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const SumOverRanks& sum_over_ranks, double eps = 1e-5);
/// x (N, C), normalised with given statistics (f32, or f64 for f64), which are constants.
Tensor batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                        const Tensor& bias);
/// Zeroes each element with probability p, below 1, and scales the others by 1/(1-p). The mask is a function of (seed,
/// stream, first_sample · elements per sample + index), so neither recompute nor the number of ranks changes it.
Tensor dropout(const Tensor& x, double p, uint64_t seed, uint64_t stream, int64_t first_sample = 0);
/// The same with the context's seed and Progress: each call has a mask of its own, as of Generator(name); and each
/// rank, where Progress was not told which samples it has.
Tensor dropout(const Tensor& x, double p, std::string_view name = "");

/// Heads and what else attention needs beside its operands.
struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 0;  ///< of keys and values, each for as many neighbouring heads as any other; 0: `heads`
  double scale = 0;      ///< of the products of queries and keys; 0: 1/√d
  double dropout = 0;    ///< probability, below 1, that a weight is zeroed; the others are scaled by 1/(1-dropout)
  /// The mask is a function of (seed, stream, first_sample, sample, head, query, key), as that of dropout().
  uint64_t seed = 0, stream = 0;
  int64_t first_sample = 0;
};
/// Causal attention: softmax(scale · q · kᵀ) · v for each head, where place t of a sample sees places up to t. A row of
/// qkv (B, T, (heads + 2 kv_heads) · d) has the queries of all heads, then the keys, then the values, as one linear()
/// makes them; the result is (B, T, heads · d). starts (i64 (B), or undefined): places before starts[b], in [0, T], are
/// not seen; their own rows are 0 and pass no gradient. Nothing of T² elements is kept or made. Throws for a start out
/// of range (on an asynchronous device: at the next wait).
Tensor attention(const Tensor& qkv, const Tensor& starts, const AttentionOptions& options);
/// The same with seed, stream and first_sample as dropout(x, p, name) takes them.
Tensor attention(const Tensor& qkv, const Tensor& starts, AttentionOptions options, std::string_view name);
/// Attention of rows at places `first` and later to those of before: qkv (B, n, …) is as attention() has it, of which
/// keys and values are written to places first … first + n - 1 of the caches `keys` and `values` (B, kv_heads, places,
/// d). The result (B, n, heads · d) has the bits of these rows of attention() of all first + n rows. starts are within
/// [0, first + n]. Throws where operations are recorded, for dropout, and when the caches have no such places.
Tensor attention_cached(const Tensor& qkv, const Tensor& keys, const Tensor& values, int64_t first,
                        const Tensor& starts, const AttentionOptions& options);

// --- losses: sums divided by a given count, so that N ranks with one global count train the same run ---------------
// Without a count they divide by their own part's. Where there are several ranks and the loss is recorded for backward
// that is refused: gradients are added up over the ranks, so each must divide by the count of the whole batch. That may
// be 0, of a batch in which nothing counts on any rank: loss and gradient are 0. What counts all the same makes them
// infinite, or is refused. In one process count 0 is as none.

/// Σ (x - target)² / count; without one, / x.numel(). Losses have no dimensions and are f32 (f64 for f64).
Tensor mse_loss(const Tensor& x, const Tensor& target, std::optional<double> count = {});
/// Σ -log softmax(logits)[label] / count over rows whose label is not ignore_index; without a count, the number of
/// those rows, counted on the device; where there is none, loss and gradient are 0. logits (N, C), labels i64 (N).
/// Throws for a label out of range (on an asynchronous device: at the next wait). `classes` below C: of a padded
/// vocabulary, the columns from there on do not exist, and have gradient 0. Logits of 16 bits are read as they are, and
/// computed with in f32. Backward takes the memory of logits that nobody else holds.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, std::optional<double> count = {},
                     int64_t ignore_index = -100, int64_t classes = 0);
struct LinearCrossEntropyOptions {
  std::optional<double> count = {};  ///< as that of cross_entropy
  int64_t ignore_index = -100;
  int64_t classes = 0;  ///< rows of weight from there on are no classes, and get gradient 0; 0: all are
  int64_t rows = 0;     ///< so many rows' logits at a time are made, and again in backward; 0: all, which are kept
};
/// cross_entropy(linear(x, weight, Tensor()), labels): x (N, in), weight (V, in), labels i64 (N). Logits are in memory
/// once, their gradient takes their place; with `rows` never more than those of so many rows are.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels,
                            const LinearCrossEntropyOptions& options = {});

// --- operators -----------------------------------------------------------------------------------------------------
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& x, double value) { return affine(x, 1, value); }
inline Tensor operator-(const Tensor& x, double value) { return affine(x, 1, -value); }
inline Tensor operator*(const Tensor& x, double value) { return affine(x, value, 0); }
/// Rounds once: div by the number.
Tensor operator/(const Tensor& x, double value);
inline Tensor operator+(double value, const Tensor& x) { return affine(x, 1, value); }
inline Tensor operator-(double value, const Tensor& x) { return affine(x, -1, value); }
inline Tensor operator*(double value, const Tensor& x) { return affine(x, value, 0); }

// --- in place, outside autograd (no grad flows; counts a write) ----------------------------------------------------
/// Refused for a computed tensor while operations are recorded.
void fill_(const Tensor& x, double value);

}  // namespace shardgrad
