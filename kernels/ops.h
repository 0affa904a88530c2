#pragma once
// Every operation's slot. Rules that hold for all of them:
//   - an OutView is written as out = beta * out + result; with beta == 0 the old values are not read;
//   - an undefined OutView is not wanted, an undefined View was not given;
//   - shapes have been checked by the caller (autograd/ops); kernels only assert what they rely on;
//   - the dtype that selects the kernel is that of the operand marked (key);
//   - f16 and bf16 compute in f32 and round once when they store; sums of them accumulate in f32;
//   - no kernel allocates tensors; scratch memory comes from kernels/workspace.h.
// "Row-wise" means over the last dimension of a tensor seen as (rows, columns).

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include <shardgrad/kernels/elementwise.h>
#include <shardgrad/kernels/ranges.h>
#include <shardgrad/kernels/table.h>
#include <shardgrad/kernels/window.h>

namespace shardgrad::kernels {

/// The slot of kernels that take these arguments after the Launch.
template <class Function> struct ArgumentsOf;
template <class... Args> struct ArgumentsOf<void(Args...)> { using SlotType = Slot<Args...>; };
template <class Function> using SlotOf = typename ArgumentsOf<Function>::SlotType;

// clang-format off
// --- filling, copying -------------------------------------------------------------------------------------------
extern Slot<OutView, double> fill;      ///< y(key) = value
extern Slot<OutView, View> copy;        ///< y = x(key), same dtype and count
extern Slot<OutView, View> cast;        ///< y = x(key) in y's dtype; every pair; floats to integers truncate
extern Slot<OutView, View> expand;      ///< y = x(key) broadcast to y's shape
/// y = x(key) summed over the dimensions where y has extent 1 or none; y has x's dtype; of integers it is i64.
extern Slot<OutView, View> sum_to;
/// y = Σ x(key)² over the last dimensions, as many elements as there are for one of y; y is f32, or f64 for f64.
extern Slot<OutView, View> square_sums;
/// The random numbers of element i are Philox4x32-10(key = seed, counter = (begin + i) / 4 and stream), lane i % 4, of
/// which the upper 24 bits are used; `fine` ones follow these 32 with the upper 21 of the same lane under ~stream.
struct RandomArgs {
  uint64_t seed, stream;
  int64_t begin = 0;  ///< index of the first element, so a range of a tensor is filled as the whole would be
  double a = 0, b = 1;  ///< uniform: [a, b); normal: mean a, standard deviation b
  bool fine = false;    ///< f64 only: 53 random bits in place of 24
};
extern Slot<OutView, RandomArgs> random_uniform, random_normal;  ///< y(key)

// --- elementwise: the lists of elementwise.h; operands broadcast to the output's shape but in backward ----------------
#define SG_UNARY(name, ...) extern Slot<OutView, View> name;                             // y = f(x(key))
#define SG_KERNEL(name, numbers, ...) extern SlotOf<void(OutView, View SG_PARAMETERS numbers)> name;
#define SG_BACKWARD(name, numbers, ...) extern SlotOf<void(OutView, View, View SG_PARAMETERS numbers)> name;
#define SG_BINARY(name, ...) extern Slot<OutView, View, View> name;                      // y = a(key) ∘ b
SG_UNARIES(SG_UNARY, SG_KERNEL, SG_BACKWARD)                                              // backward: (dx, dy(key), v)
SG_BINARIES(SG_BINARY)
SG_RELATIONS(SG_BINARY)                                                                   // y is u8
#undef SG_UNARY
#undef SG_KERNEL
#undef SG_BACKWARD
#undef SG_BINARY
extern Slot<OutView, View, View, View> where;                    ///< y = condition (u8) ? a(key) : b

// --- moving elements ----------------------------------------------------------------------------------------------
using Permutation = std::array<int, kMaxDims>;
extern Slot<OutView, View, Permutation> permute;                 ///< y's dimension d is x(key)'s dimension p[d]
extern Slot<OutView, View, int, int64_t> narrow;                 ///< y = x(key)[start, start + y.size(dim)) along dim
extern Slot<OutView, View, int, int64_t> narrow_backward;        ///< dx = dy(key) at that place, 0 elsewhere
extern Slot<OutView, View, int, int64_t> paste;                  ///< y[start, …) along dim = x(key); the rest is untouched
/// y = x(key) with the order turned round along each dimension d whose bit (1 << d) is set.
extern Slot<OutView, View, unsigned> flip;
/// y[…, i, j] = x(key)[…, i, j] where j - i is at most (lower), or at least, the diagonal's number, and 0 elsewhere.
extern Slot<OutView, View, int64_t, bool> triangle;
extern Slot<OutView, View, View, int> index_select;              ///< y[…, i, …] = x(key)[…, index[i], …] along dim; index i64
extern Slot<OutView, View, View, int> index_add;                 ///< y[…, index[i], …] += x(key)[…, i, …]; in index order
extern Slot<OutView, View, View, int> gather;                    ///< as torch.gather: (y, x(key), index i64, dim)
extern Slot<OutView, View, View, int> scatter_add;               ///< as torch.scatter_add: (y, src(key), index i64, dim)
/// As torch.scatter: (y, src(key), index i64, dim); what is not named is untouched, and nothing is named twice. An index
/// (n) of y (rows, …) along dim 0 names whole rows, of src (n, …).
extern Slot<OutView, View, View, int> scatter;

// --- row-wise and reductions ----------------------------------------------------------------------------------------
/// (values, index i64, x(key), dim, least): the largest along dim, or the smallest; NaN before all, of equal ones the first.
extern Slot<OutView, OutView, View, int, bool> max_dim;
/// y[e] = Σ x(key)[i] over i ≤ e along dim, or i ≥ e in reverse; sums of floats in f64, i64 wraps; no other integers.
extern Slot<OutView, View, int, bool> cumsum;
extern Slot<OutView, View, int> prod;                            ///< y = Π x(key) along dim; in f64, of integers i64
/// (dx, dy(key), x, dim): dx[i] = dy · Π x[j] over j ≠ i, whichever are 0; in f64. dy has extent 1 along dim.
extern Slot<OutView, View, View, int> prod_backward;
/// (values, index i64, x(key), dim, descending): the first elements of x in order along dim, as many as values have, and
/// where they were. NaN counts as largest; of equal elements the first comes first.
extern Slot<OutView, OutView, View, int, bool> sort;
extern Slot<OutView, View, int, bool> softmax;                   ///< (y, x(key), dim, log): softmax or log-softmax along dim
extern Slot<OutView, View, View, int, bool> softmax_backward;    ///< (dx, dy(key), y, dim, log)
extern Slot<OutView, OutView, OutView, View, View, View, double> layer_norm;  ///< (y, mean, rstd, x(key), weight, bias, eps)
extern Slot<OutView, OutView, OutView, View, View, View, View, View> layer_norm_backward;
                                                                 ///< (dx, dweight, dbias, dy(key), x, weight, mean, rstd)
extern Slot<OutView, OutView, View, View, double> rms_norm;      ///< (y, rstd, x(key), weight, eps): y = x · rstd · weight
extern Slot<OutView, OutView, View, View, View, View> rms_norm_backward;  ///< (dx, dweight, dy(key), x, weight, rstd)
/// (sum, y, mean, rstd, x(key), residual, weight, bias, eps): sum = x + residual of one shape, and what layer_norm makes of it
/// as it was rounded, with the bits that the two have one after the other. Backward is layer_norm_backward, of the sum.
extern Slot<OutView, OutView, OutView, OutView, View, View, View, View, double> add_layer_norm;
extern Slot<OutView, OutView, OutView, View, View, View, double> add_rms_norm;  ///< (sum, y, rstd, x(key), residual, weight, eps)
// x is (samples, channels, …); mean and rstd are per channel, of the biased variance over all else.
extern Slot<OutView, OutView, OutView, View, View, View, double> batch_norm;  ///< (y, mean, rstd, x(key), weight, bias, eps)
extern Slot<OutView, OutView, OutView, View, View, View, View, View> batch_norm_backward;
                                                                 ///< (dx, dweight, dbias, dy(key), x, weight, mean, rstd)
extern Slot<OutView, View, View, View, View, View> batch_norm_apply;  ///< y = (x(key) - mean) · rstd · weight + bias
// x is (samples, channels, …), of whose channels each of `groups` equal parts is normalised, in each sample: mean and rstd
// are (samples, groups); weight and bias are per channel.
extern Slot<OutView, OutView, OutView, View, View, View, int64_t, double> group_norm;
                                                                 ///< (y, mean, rstd, x(key), weight, bias, groups, eps)
extern Slot<OutView, OutView, OutView, View, View, View, View, View, int64_t> group_norm_backward;
                                                                 ///< (dx, dweight, dbias, dy(key), x, weight, mean, rstd, groups)

/// y (…, F) = silu(g) · u, where a row of x(key) (…, 2F) is F elements g, then F elements u.
extern Slot<OutView, View> swiglu;
extern Slot<OutView, View, View> swiglu_backward;                ///< (dx, dy(key), x)
struct RopeArgs {
  int64_t heads;               ///< that are rotated, from the beginning of a row on; the rest of the row is copied
  int64_t first_position = 0;  ///< of row 0 of a sample that starts at 0
  bool inverse = false;
};
/// (y, x(key) (B, T, …), table (positions, d) of f32 (f64 for f64), starts i64 (B) or undefined, args). Elements i and
/// i + d / 2 of a head, a pair, are rotated: row p of the table has the cosine for pair i at i, the sine at i + d / 2, where p
/// is first_position + t - starts[b], at least 0. y may be x. Throws Error(input) when a start is outside of
/// [0, first_position + T].
extern Slot<OutView, View, View, View, RopeArgs> rope;

/// The mask of element e of global sample s is Philox(key = seed, counter = (s · per_sample + e) / 4 and stream) ≥ p.
struct DropoutArgs {
  double p;
  uint64_t seed, stream;
  int64_t first_element;  ///< (global index of this rank's first sample) · elements per sample
};
/// (y, x(key), drawn, args): y = x · mask / (1 - p); backward is the same call. `drawn` (i64, 2), where it is defined, has
/// seed and stream in the place of those of the args: a step that is run again draws other numbers each time.
extern Slot<OutView, View, View, DropoutArgs> dropout;

// --- attention ---------------------------------------------------------------------------------------------------------
/// Row t of sample b of qkv (B, T, (H + 2 G) · d) has H queries of d elements, then G keys, then G values; query head h
/// goes with key and value head h / (H / G). y is (B, T, H · d), lse (B, H, T) is f32 (f64 for f64).
struct AttentionArgs {
  int64_t heads, kv_heads;  ///< H and G, which divides H
  double scale;             ///< of the products of queries and keys
  /// The mask of the weight of query i for key j of head h of global sample s is that of DropoutArgs for the element
  /// e = ((s · H + h) · T + i) · T + j: Philox(key = seed, counter = e / 4 and stream) ≥ dropout. So H and T are in it.
  double dropout = 0;
  uint64_t seed = 0, stream = 0;
  int64_t first_sample = 0;  ///< global number of sample 0
};
/// (y, lse, qkv(key), starts, args): query i sees the keys from starts[b] (i64 (B), 0 where it is undefined) to i, with the
/// weights softmax(scale · q · kᵀ), whose logarithm's divisor is lse. Rows before starts[b] are 0, and so is their lse.
/// Throws Error(input) for a start outside [0, T].
extern Slot<OutView, OutView, View, View, AttentionArgs> attention;
extern Slot<OutView, View, View, View, View, View, AttentionArgs> attention_backward;
                                                                 ///< (dqkv, dy(key), qkv, y, lse, starts, args)

/// For places from `first` on, whose keys and values are in the caches with those before.
struct CachedAttentionArgs {
  int64_t heads, kv_heads;
  double scale;
  int64_t first;
};
/// (y, qkv(key) (B, n, (H + 2 G) · d), keys, values (B, G, places, d), starts, args): row t of a sample is at place
/// first + t; y and starts as those of attention, whose bits a row has. Throws Error(input) for a start outside
/// [0, first + n].
extern Slot<OutView, View, View, View, View, CachedAttentionArgs> attention_cached;

// --- images: x is (samples, channels, height, width) --------------------------------------------------------------------
/// The windows down and across an image, and the groups that the channels of a convolution are cut into.
struct ConvArgs {
  Window down, across;
  int64_t groups = 1;
};
/// (y, x(key), w (out, channels / groups, kernel, kernel), bias (out) or undefined, args): y (samples, out, places down,
/// places across) is the sum over each window of what lies in it times w of that group, with zeros around x, and around dy
/// for the gradient of x: these are multiplied, so a factor that is not finite makes NaN of them.
extern Slot<OutView, View, View, View, ConvArgs> conv2d;
extern Slot<OutView, View, View, ConvArgs> conv2d_backward_input;            ///< (dx, dy(key), w, args)
extern Slot<OutView, OutView, View, View, ConvArgs> conv2d_backward_weight;  ///< (dw, dbias, dy(key), x, args)
/// The last window of a dimension may reach beyond the padding, but begins before its end at the right.
struct PoolArgs {
  Window down, across;          ///< dilation is 1, and padding at most half of the kernel
  bool padding_counts = true;   ///< in a window's mean, as zeros; what lies beyond it never does
  /// Means only: in the place of windows, part i of n of an extent E is from ⌊i · E / n⌋ to ⌈(i + 1) · E / n⌉.
  bool parts = false;
};
/// (y, index i32, x(key), args): the largest of each window, and where in its image it lies (row · width + column). Of
/// equal ones the first, NaN before all; what is padded is never taken.
extern Slot<OutView, OutView, View, PoolArgs> max_pool2d;
/// (dx, dy(key), index, args): dx is the sum of those dy whose index names the place, in the order of their windows.
extern Slot<OutView, View, View, PoolArgs> max_pool2d_backward;
extern Slot<OutView, View, PoolArgs> avg_pool2d;           ///< y = mean of each window of x(key)
extern Slot<OutView, View, PoolArgs> avg_pool2d_backward;  ///< (dx, dy(key), args)

// --- losses: loss is f32 (f64 for f64) with one element ---------------------------------------------------------------
extern Slot<OutView, View, View, double> mse;                    ///< loss = scale · Σ (x(key) - target)²
extern Slot<OutView, View, View, View, double> mse_backward;     ///< (dx, dloss, x(key), target, scale)
/// loss = scale · Σ d² / 2 where |d| <= delta, and delta · (|d| - delta / 2) elsewhere, d = x(key) - target.
extern Slot<OutView, View, View, double, double> huber_loss;
extern Slot<OutView, View, View, View, double, double> huber_loss_backward;  ///< (dx, dloss, x(key), target, scale, delta)
struct CrossEntropyArgs {
  double scale;
  int64_t ignore_index;
  int64_t classes = 0;  ///< the columns that there are, from the first on; others have gradient 0. 0: all
  int64_t classes_of(int64_t columns) const { return classes > 0 ? classes : columns; }
};
/// (loss, lse (rows, 2), logits(key), labels i64): loss = scale · Σ (lse - logits[label]) over rows whose label is not
/// ignored. lse is the largest logit of a row and log Σ exp(logit - largest): their sum would lose the digits of the second.
/// Throws Error(input) naming row and label when a label is out of range.
extern Slot<OutView, OutView, View, View, CrossEntropyArgs> cross_entropy;
/// (dx, dloss, logits(key), lse, labels, args); dx may be the logits.
extern Slot<OutView, View, View, View, View, CrossEntropyArgs> cross_entropy_backward;

// --- matmul -----------------------------------------------------------------------------------------------------------
enum class Epilogue : uint8_t { none, relu, gelu_tanh };
struct MatmulArgs {
  bool trans_a = false, trans_b = false;  ///< the last two dimensions of a (b) are transposed
  Epilogue epilogue = Epilogue::none;
};
/// (c, pre, a(key), b, bias, args): c = epilogue(op(a) · op(b) + bias). a is (…, M, K), b is (…, K, N) with the same
/// leading dimensions, or either has none of them and is used for all. bias is (N). `pre` (optional, c's shape) gets
/// the value before the epilogue. beta is 0 when there is an epilogue. With relu, `pre` is the mask that relu_mask_bytes
/// asks for, if it does.
extern Slot<OutView, OutView, View, View, View, MatmulArgs> matmul;
// Backward of y = x · wᵀ + bias, from the gradient dy of that sum; dy is (rows, out), x (rows, in), w (out, in).
/// dx = dy(key) · w. Where x came from relu: given x, dx is the gradient of what came before (0 where x ≤ 0; beta is 0),
/// and the mask is that of the product that made x, or undefined.
extern Slot<OutView, View, View, View, View> linear_backward_input;      ///< (dx, dy(key), w, x, mask)
extern Slot<OutView, OutView, View, View> linear_backward_weight;        ///< (dw, dbias, dy(key), x): dyᵀ · x, Σ rows of dy
/// No operation but a question, which not every device has a function for: (bytes, c, a(key), b, bias, args). How large a
/// mask, in a form of its own, a product with relu leaves for linear_backward_input; 0: none. Answered at once.
extern Slot<int64_t*, OutView, View, View, View, MatmulArgs> relu_mask_bytes;

// --- optimizers: one fused pass over flat ranges; p and the state are updated in place ----------------------------------
/// The gradient is multiplied first, by grad_scale and by the one number (f64) of `scale`, where it is defined: what the
/// host does not wait for. What changes from step to step may lie in the device's memory in the place of the args
/// (UpdateRange::numbers), for a step that is run again: write() writes it, and take() is for the host's kernels.
struct SgdArgs {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, first_step;
  double grad_scale = 1;  ///< such as 1 / loss scale
  Rounding rounding = {};  ///< where p is bf16
  static constexpr int64_t kNumbers = 2 + Rounding::kNumbers;
  void write(double* to) const { to[0] = lr, to[1] = first_step ? 1 : 0, rounding.write(to + 2); }
  void take(const double* from) { lr = from[0], first_step = from[1] != 0, rounding.take(from + 2); }
};
/// (ranges(key), scale); state: momentum buffer or undefined, nothing
extern Slot<UpdateRanges<SgdArgs>, View> sgd;
struct AdamArgs {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;                              ///< AdamW: p -= lr · weight_decay · p; else added to the gradient
  double bias_correction1, bias_correction2;   ///< 1 - beta^step
  double grad_scale = 1;
  Rounding rounding = {};
  /// What the host computes of them for all elements.
  double keep() const { return 1 - lr * weight_decay; }
  double step_size() const { return lr / bias_correction1; }
  double root_correction() const { return 1 / std::sqrt(bias_correction2); }
  static constexpr int64_t kNumbers = 6 + Rounding::kNumbers;
  void write(double* to) const {
    to[0] = keep(), to[1] = step_size(), to[2] = root_correction();
    to[3] = lr, to[4] = bias_correction1, to[5] = bias_correction2, rounding.write(to + 6);
  }
  void take(const double* from) {
    lr = from[3], bias_correction1 = from[4], bias_correction2 = from[5], rounding.take(from + 6);
  }
};
/// (ranges(key), scale); state: exp_avg, exp_avg_sq
extern Slot<UpdateRanges<AdamArgs>, View> adam;

// --- norms of gradients -------------------------------------------------------------------------------------------------
inline constexpr int64_t kNormBlock = 32;                            ///< elements
inline constexpr int64_t kNormNode = 32 * 32 * kNormBlock;           ///< elements of a whole subtree of blocks
/// (ranges(key), p): y (f64, flat) = Σ |x|^p over each `width` elements, kNormBlock or kNormNode, the last may be short: in
/// f64, by the tree of neighbours, first in blocks, then of blocks. For p = inf the largest |x|, where not-a-number wins.
/// beta is 0.
extern Slot<NormRanges, double> norm_powers;
/// (values(key), joins, levels, p): works off a list of joins (optim/joins.h) among values (f64, flat), in place. joins
/// (i32, (n, 3)) has in each row where the result goes and what is joined: a + b, for p = inf the larger, where
/// not-a-number wins; a alone where b is -1; 0 where a is, too. levels (i32, flat) are ends of rows: those up to one
/// need only results of those up to the one before, and no two of them write the same value.
extern Slot<OutView, View, View, double> join_values;
/// scale (f64, one, key) = min(1, max_norm / (sqrt(power) + 1e-6)), or 1 where the power (f64, one) is not finite.
extern Slot<OutView, View, double> clip_scale;

// --- sums over ranks ----------------------------------------------------------------------------------------------------
/// y(key) = the parts' sum by a pairwise tree: neighbours 2i and 2i+1, an odd last one carried up. Parts have y's count
/// and the dtype given; f16, bf16 and f32 accumulate in f32, f64 in f64, integers exactly.
struct TreeSumArgs {
  const void* const* parts;
  int count;
  DType dtype;
};
extern Slot<OutView, TreeSumArgs> tree_sum;
// clang-format on

/// The slot of every operation declared above, for tests and listings; relu_mask_bytes is none.
std::span<const SlotBase* const> all_slots();

}  // namespace shardgrad::kernels
