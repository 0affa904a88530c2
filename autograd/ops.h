#pragma once
// The operations users call. Names and arguments follow PyTorch. Elementwise operations broadcast like NumPy; operands
// must share dtype and device (convert with Tensor::to). All throw Error(input) naming the operation and both shapes.
// Dimensions may be negative, counted from the end. Here are products, layers and losses; the others are in
//
//     ops/creation.h     tensor, zeros, arange, randn, from_blob, …
//     ops/functions.h    add, exp, where, maximum, isnan, …
//     ops/layout.h       reshape, slice, cat, index, gather, …
//     ops/reductions.h   sum, max, var, sort, cumsum, …
//     ops/convolution.h  conv2d, max_pool2d, …
//     ops/losses.h       huber_loss, nll_loss, cross_entropy with options, …
//     ops/operators.h    +, ==, +=, …
//     core/tensor.h      methods: x.sum(), x.t(), x[i]

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/grad_mode.h>
#include <shardgrad/autograd/ops/convolution.h>
#include <shardgrad/autograd/ops/creation.h>
#include <shardgrad/autograd/ops/functions.h>
#include <shardgrad/autograd/ops/layout.h>
#include <shardgrad/autograd/ops/losses.h>
#include <shardgrad/autograd/ops/operators.h>
#include <shardgrad/autograd/ops/reductions.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {

// --- layers --------------------------------------------------------------------------------------------------------
/// op(a) · op(b): the last two dimensions multiply; leading ones broadcast, which copies unless they match or one
/// operand has none. A vector is a row of a, a column of b, and that dimension is not in the result; two give their dot
/// product.
Tensor matmul(const Tensor& a, const Tensor& b, bool trans_a = false, bool trans_b = false);
/// a (N), b (M): (N, M), each element with each.
Tensor outer(const Tensor& a, const Tensor& b);
/// Sums of products, as PyTorch's: "bij,bjk->bik" names the dimensions of each operand and of the result; those that
/// the result has not are summed over. "..." is any leading dimensions, which broadcast. A name twice in an operand is
/// its diagonal. Without "->" the result has what is named once, by the alphabet. Operands are taken from the left.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands);
enum class Activation : uint8_t { none, relu, gelu_tanh };
/// activation(x · weightᵀ + bias): x (…, in), weight (out, in), bias (out) or undefined. One GEMM with its epilogue.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation = Activation::none);
/// Over the last dimension; weight and bias (D) or undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
/// x / √(mean(x²) + eps) · weight over the last dimension; weight (D) or undefined. LLaMA's normalisation.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-6);
struct AddNormResult {
  Tensor sum, y;
};
/// sum = x + residual, of one shape, and y = layer_norm(sum, weight, bias, eps), in one pass over the rows. Results and
/// gradients have the bits of add() and layer_norm(). Hooks of the sum see its gradient without what comes through y;
/// where y is not used, weight and bias have gradients of zeros.
AddNormResult add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                             double eps = 1e-5);
/// The same of rms_norm.
AddNormResult add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps = 1e-6);
/// silu(gate) · up, (…, F), where a row of gate_up (…, 2F) holds F gates and then F values up.
Tensor swiglu(const Tensor& gate_up);
/// Rotary position embedding (arXiv 2104.09864; pairs i and i + d / 2, as Hugging Face's) of the query and key heads in
/// rows qkv (B, T, (heads + 2 · kv_heads) · d): query heads, key heads, value heads, which stay as they are. `table`
/// (positions, d) is rope_table's, f32 (f64 for f64). Row t of sample b is at position first_position + t - starts[b],
/// or 0 where that is negative; starts: i64 (B), or undefined for 0.
Tensor rope(const Tensor& qkv, const Tensor& table, int64_t heads, int64_t kv_heads, const Tensor& starts = Tensor(),
            int64_t first_position = 0);
/// x (N, C, …), each of `groups` equal parts of a sample's channels to mean 0 and variance 1, then each channel scaled
/// by weight and shifted by bias, both (C) or undefined.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
struct BatchNormResult {
  Tensor y, mean, rstd;  ///< mean and rstd (C) of this batch, of the biased variance; not differentiable themselves
  Tensor samples = {};   ///< of sync_batch_norm: one element, how many elements of a channel all ranks have
};
/// x (N, C, …) with at least one element of each channel, which is normalised with its own mean and variance in the
/// batch; weight and bias (C) or undefined.
BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
/// Replaces a tensor by its sum over the ranks that share a batch, in the order of the compute stream.
using SumOverRanks = std::function<void(const Tensor& t)>;
/// The same with the statistics of all ranks' samples, of which a rank may have any number.
BatchNormResult sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                const SumOverRanks& sum_over_ranks, double eps = 1e-5);
/// x (N, C, …), normalised with given statistics (f32, or f64 for f64), which are constants.
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
  /// The mask is a function of (seed, stream, first_sample, sample, head, query, key), as that of dropout(), and of the
  /// shape: of how many heads and places there are. A text in longer rows has another mask.
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
// infinite, or, of losses of elements, is refused. In one process count 0 of labels is as none.

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

}  // namespace shardgrad
