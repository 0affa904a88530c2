#pragma once
// The seam between kernels and their hot loops. A kernel (kernels/cpu/*.cpp) unpacks views, validates, and divides the
// work among threads; a loop (kernels/cpu/isa/*.cpp) sees only pointers, counts and numbers, and is compiled once per
// instruction set. The tables below are all that leaves those object files.

#include <cstdint>

#include <shardgrad/core/dtype.h>
#include <shardgrad/kernels/cpu/convolution_loops.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::cpu {

/// The numbers an elementwise loop may need (scale and shift, exponent, bounds).
struct Scalars {
  double a = 0, b = 0;
};

// The rows of kernels/elementwise.h by number.
#define SG_NUMBER(name, ...) name,
enum class Unary { SG_UNARIES(SG_NUMBER, SG_NUMBER, SG_NO_ROW) count };
/// The backward ones take (dy, v) as (a, b).
enum class Binary { SG_BINARIES(SG_NUMBER) SG_UNARIES(SG_NO_ROW, SG_NO_ROW, SG_NUMBER) count };
#undef SG_NUMBER

/// An elementwise loop's index space: rows x cols elements, contiguous in y. Operand k of row r begins at element
/// r * row[k] and advances by one element per column, or stays where fixed[k]. accumulate: y += result, not y = result.
struct Grid {
  int64_t rows = 1, cols = 0;
  int64_t row[3] = {};
  bool fixed[3] = {};
  bool accumulate = false;
};

struct ElementwiseLoops {
  using UnaryLoop = void (*)(void* y, const void* x, int64_t n, Scalars, bool accumulate);
  using BinaryLoop = void (*)(void* y, const void* a, const void* b, const Grid&, Scalars);
  using CastLoop = void (*)(void* y, const void* x, int64_t n, bool accumulate);
  UnaryLoop unary[int(Unary::count)][kFloatCount];
  BinaryLoop binary[int(Binary::count)][kFloatCount];
  BinaryLoop scaled_difference[kFloatCount];          ///< s.a * (a - b), of one flat row
  BinaryLoop scaled_bounded_difference[kFloatCount];  ///< s.a * (a - b, within ± s.b), of one flat row
  CastLoop cast[kFloatCount][kFloatCount];            ///< [to][from]
};

/// Sums in a fixed order. f16, bf16 and f32 add up in f32 lanes, f64 in f64, integers in i64, where they wrap.
struct ReduceLoops {
  double (*sum[kFloatCount])(const void* x, int64_t n);
  double (*squares[kFloatCount])(const void* x, int64_t n);  ///< their sum
  double (*squared_difference[kFloatCount])(const void* x, const void* target, int64_t n);
  double (*huber_difference[kFloatCount])(const void* x, const void* target, int64_t n, double delta);
  /// acc[c] += x[r * stride + c] for each row r in turn; acc is float, double for f64, int64_t for integers.
  void (*add_rows[kDTypeCount])(void* acc, const void* x, int64_t rows, int64_t cols, int64_t stride);
  /// The largest, or the smallest, of at least one element; NaN if there is one.
  double (*largest[kFloatCount])(const void* x, int64_t n);
  double (*smallest[kFloatCount])(const void* x, int64_t n);
  int64_t (*sum_integers[kDTypeCount - kFloatCount])(const void* x, int64_t n);
};

/// The softmax of some columns of a matrix, whose rows are `stride` elements apart.
struct SoftmaxColumns {
  int64_t rows, cols, stride;
  bool log, accumulate;
};

/// Loops over the rows of (rows, cols).
struct RowLoops {
  using Softmax = void (*)(void* y, const void* x, int64_t rows, int64_t cols, bool log, bool accumulate);
  using SoftmaxBackward = void (*)(void* dx, const void* dy, const void* y, int64_t rows, int64_t cols, bool log,
                                   bool accumulate);
  Softmax softmax[kFloatCount];
  SoftmaxBackward softmax_backward[kFloatCount];
  void (*softmax_columns[kFloatCount])(void* y, const void* x, const SoftmaxColumns&);
  void (*softmax_columns_backward[kFloatCount])(void* dx, const void* dy, const void* y, const SoftmaxColumns&);
  /// lse[2r] = max x[r · stride + c], lse[2r + 1] = log Σ exp(x[r · stride + c] - max); float, or double for f64
  void (*log_sum_exp[kFloatCount])(void* lse, const void* x, int64_t rows, int64_t cols, int64_t stride);
  /// dx[r, c] = k · (exp(x[r, c] - lse[2r] - lse[2r + 1]) - (c == labels[r])), and 0 in rows whose label is `ignore`
  /// and in columns from `classes` on; dx may be x
  void (*cross_entropy_backward[kFloatCount])(void* dx, const void* x, const void* lse, const int64_t* labels,
                                              int64_t rows, int64_t cols, int64_t classes, double k, int64_t ignore,
                                              bool accumulate);
};

/// Mean and rstd (float, or double for f64), one per row or one per column. Without means rows are not centered: RMS
/// norm.
struct NormStatistics {
  const void *mean, *rstd;
  bool per_row;
};
/// Weight and bias have x's dtype and may be null; sums (acc, dweight, dbias) are float, or double for f64.
struct NormLoops {
  void (*row_statistics[kFloatCount])(void* mean, void* rstd, const void* x, int64_t rows, int64_t cols, double eps);
  void (*normalize[kFloatCount])(void* y, const void* x, const NormStatistics&, const void* weight, const void* bias,
                                 int64_t rows, int64_t cols, bool accumulate);
  /// acc[c] += Σ (x[r, c] - mean[c])²
  void (*column_squares[kFloatCount])(void* acc, const void* x, const void* mean, int64_t rows, int64_t cols);
  /// dweight[c] += Σ dy · x̂, dbias[c] += Σ dy
  void (*weight_sums[kFloatCount])(void* dweight, void* dbias, const void* dy, const void* x, const NormStatistics&,
                                   int64_t rows, int64_t cols);
  void (*row_backward[kFloatCount])(void* dx, const void* dy, const void* x, const NormStatistics&, const void* weight,
                                    int64_t rows, int64_t cols, bool accumulate);
  void (*column_backward[kFloatCount])(void* dx, const void* dy, const void* x, const NormStatistics&,
                                       const void* weight, const void* dweight, const void* dbias, int64_t samples,
                                       int64_t rows, int64_t cols, bool accumulate);
};

/// Runs of `length` elements that lie `stride` apart: those of one channel.
struct Runs {
  int64_t count, length, stride;
};
/// What a channel is normalised with: numbers of its elements' computing type.
struct ChannelNorm {
  double mean, rstd, weight = 1, bias = 0;
};
/// batch_norm and group_norm of elements that lie channel by channel. Sums are of as few elements as lose no more than
/// few.
struct ChannelLoops {
  double (*sum[kFloatCount])(const void* x, const Runs&);
  double (*squares[kFloatCount])(const void* x, const Runs&, double mean);  ///< Σ (x - mean)²
  /// sums[0] += Σ dy · x̂, sums[1] += Σ dy
  void (*products[kFloatCount])(double* sums, const void* dy, const void* x, const Runs&, const ChannelNorm&);
  void (*normalize[kFloatCount])(void* y, const void* x, const Runs&, const ChannelNorm&, bool accumulate);
  /// dx = weight · rstd · (dy - mean_dy - x̂ · mean_product)
  void (*backward[kFloatCount])(void* dx, const void* dy, const void* x, const Runs&, const ChannelNorm&,
                                double mean_dy, double mean_product, bool accumulate);
  /// The same where channels share mean and rstd: dx = rstd · (dy · weight - mean_g - x̂ · mean_product)
  void (*group_backward[kFloatCount])(void* dx, const void* dy, const void* x, const Runs&, const ChannelNorm&,
                                      double mean_g, double mean_product, bool accumulate);
};

/// Pooling of one image, whose windows have `rows` places down and `columns` across.
struct PoolTask {
  int64_t height, width, rows, columns;
  Window down, across;
  void* workspace = nullptr;  ///< PoolLoops::workspace bytes, 64-byte aligned
  bool accumulate = false, accumulate_index = false;
};
/// An element of y is made of its window in the order of rows, an element of dx of its windows in theirs.
struct PoolLoops {
  void (*largest[kFloatCount])(void* y, int32_t* index, const void* x, const PoolTask&);  ///< index may be null
  void (*mean[kFloatCount])(void* y, const void* x, const PoolTask&);
  void (*mean_backward[kFloatCount])(void* dx, const void* dy, const PoolTask&);
  size_t (*workspace[kFloatCount])(const PoolTask&);
};

/// Loops over the rows of a transformer's layers.
struct TransformerLoops {
  /// y (rows, cols) = silu(first half) · second half of the rows of x (rows, 2 · cols)
  void (*swiglu[kFloatCount])(void* y, const void* x, int64_t rows, int64_t cols, bool accumulate);
  void (*swiglu_backward[kFloatCount])(void* dx, const void* dy, const void* x, int64_t rows, int64_t cols,
                                       bool accumulate);
  /// One row: pairs (i, i + half) of each of `heads` heads are rotated by the angles whose `half` cosines, then sines,
  /// are given (float, or double for f64), and `rest` elements after them are copied; y may be x.
  void (*rope[kFloatCount])(void* y, const void* x, const void* angles, int64_t heads, int64_t half, int64_t rest,
                            bool inverse, bool accumulate);
};

/// For f32 and f64; numbers of bf16 are converted before.
struct OptimizerLoops {
  void (*sgd[2])(void* p, void* momentum, const void* g, int64_t n, const kernels::SgdArgs&);
  void (*adam[2])(void* p, void* exp_avg, void* exp_avg_sq, const void* g, int64_t n, const kernels::AdamArgs&);
};

/// Elements [begin, begin + n) of the random sequence (seed, stream); see kernels/ops.h.
struct RandomRange {
  uint64_t seed, stream;
  int64_t begin;
  bool fine = false;
};
struct RandomLoops {
  /// y = min(a + (b - a) u, below)
  void (*uniform[kFloatCount])(void* y, int64_t n, RandomRange, double a, double b, double below, bool accumulate);
  void (*normal[kFloatCount])(void* y, int64_t n, RandomRange, double mean, double deviation, bool accumulate);
  /// y = u >= p ? x * scale : 0
  void (*dropout[kFloatCount])(void* y, const void* x, int64_t n, RandomRange, double p, double scale, bool accumulate);
  /// y (bf16) = x (f32), rounded as kernels::Rounding has it; the stream is 0
  void (*round_by_chance)(void* y, const float* x, int64_t n, RandomRange);
};

/// One thread's share of a matrix product: c (m, n) = a (m, k) · b (k, n), element (i, j) of a at a[i * a_row + j *
/// a_col]. Rows of c are contiguous, c_row elements apart.
struct GemmTask {
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_col;
  const void* b;
  int64_t b_row, b_col;
  void* c;
  int64_t c_row;
  bool accumulate;
  void* workspace;  ///< GemmLoops::workspace bytes, 64-byte aligned; not used by `small`
};
/// The largest k · n of a transposed b that GemmLoops::small takes.
inline constexpr int64_t kSmallTransposed = 4096;
/// c (m, n) = a (m, k) · bᵀ or c += it, for m <= kFewRows rows. Rows of a and c lie a_row and c_row elements apart,
/// those of b (n, k) one behind the other. a and c are f32 (f64 for f64), whatever b is.
struct FewRowsTask {
  int64_t m, n, k;
  const void* a;
  int64_t a_row;
  const void* b;
  void* c;
  int64_t c_row;
  bool accumulate = false;
};
inline constexpr int64_t kFewRows = 8;
/// For f32 and f64. The order of each element's sum depends on k alone.
struct GemmLoops {
  void (*gemm[2])(const GemmTask&);
  /// Without packing, for operands that fit the cache.
  void (*small[2])(const GemmTask&);
  size_t (*workspace[2])(int64_t m, int64_t n, int64_t k);
  int row_step[2], column_step[2];                    ///< where a product is best cut
  void (*few_rows[kFloatCount])(const FewRowsTask&);  ///< by b's dtype; the bits of `gemm`
};

/// One thread's share of attention: heads of queries that share their keys and values, at the places that are seen.
/// Pointers are to the first head's elements at the first of these; heads of q, y, dy and dq lie side by side.
struct AttentionTask {
  int64_t heads, rows, depth;  ///< heads of queries; places; elements of a head
  int64_t row, y_row;          ///< elements from place to place of q, k, v, dq, dk, dv, and of y, dy
  int64_t length;              ///< all places, the elements from head to head of lse
  const void *q, *k, *v;
  double scale;
  double dropout, kept;  ///< weights with smaller random numbers are left out, the others are multiplied by `kept`
  RandomRange mask;      ///< begins at the first head, query and key
  void* workspace;       ///< AttentionLoops::workspace bytes, 64-byte aligned
};
struct AttentionForward : AttentionTask {
  void *y, *lse;  ///< lse may be null
  bool accumulate, accumulate_lse;
};
struct AttentionBackward : AttentionTask {
  const void *dy, *y, *lse;
  void *dq, *dk, *dv;
  bool accumulate;
};
/// One place's queries, of heads that share keys and values, and the cached ones that they see. Pointers are to the
/// first head's query and result, and to the first key and value that are seen; rows of all have `depth` elements.
struct CachedAttention {
  int64_t heads, keys, depth;
  const void *q, *k, *v;
  void* y;
  double scale;
  bool accumulate;
  void* workspace;  ///< AttentionLoops::cached_workspace bytes, 64-byte aligned, the same in all three calls
};
inline constexpr int64_t kKeyBlock = 256;  ///< keys that meet a query at a time

/// The order of every sum depends on rows, depth and heads alone, and a row's results on no later row.
struct AttentionLoops {
  void (*forward[kFloatCount])(const AttentionForward&);
  void (*backward[kFloatCount])(const AttentionBackward&);
  size_t (*workspace[kFloatCount])(int64_t rows, int64_t depth, bool backward);
  /// First of every block of kKeyBlock keys, then of every block, then of every head; each has the bits of `forward`.
  void (*cached_scores[kFloatCount])(const CachedAttention&, int64_t block);
  void (*cached_sums[kFloatCount])(const CachedAttention&, int64_t block);
  void (*cached_result[kFloatCount])(const CachedAttention&, int64_t head);
  size_t (*cached_workspace[kFloatCount])(int64_t heads, int64_t keys, int64_t depth);
};

/// Every loop of one instruction set.
struct Loops {
  const ElementwiseLoops& elementwise;
  const ReduceLoops& reduce;
  const RowLoops& rows;
  const NormLoops& norm;
  const ChannelLoops& channels;
  const PoolLoops& pooling;
  const TransformerLoops& transformer;
  const OptimizerLoops& optimizers;
  const RandomLoops& random;
  const GemmLoops& gemm;
  const AttentionLoops& attention;
  const ConvolutionLoops& convolution;
};

/// The loops of the best instruction set this machine has.
const Loops& loops();
/// The loops of one instruction set, or null when this build or machine lacks it.
const Loops* loops_of(Isa isa);

}  // namespace shardgrad::cpu
