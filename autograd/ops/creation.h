#pragma once
// New tensors: of given numbers, of random ones, of one-hot rows (autograd/ops.h). None has a gradient.

#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// Of integers the number is one that the dtype holds, here and in fill_.
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, Scalar value);
/// 0, 1, …, count - 1; i64 unless options say otherwise.
Tensor arange(int64_t count, TensorOptions options = DType::i64);
/// begin, begin + step, … before end; without options i64, or f32 where one of them is no integer.
Tensor arange(Scalar begin, Scalar end, Scalar step = 1);
Tensor arange(Scalar begin, Scalar end, Scalar step, TensorOptions options);
/// `count` numbers from first to last, both included, one as far from the next as any other.
Tensor linspace(double first, double last, int64_t count, TensorOptions options = {});
/// 1 on the diagonal, 0 elsewhere; square unless `columns` are given.
Tensor eye(int64_t rows, int64_t columns = -1, TensorOptions options = {});

/// Numbers in braces, nested as deep as the tensor has dimensions.
class NestedNumbers {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> NestedNumbers(T value)
      : scalar_(true),
        whole_(std::is_integral_v<T>),
        integer_(std::is_integral_v<T> ? int64_t(value) : 0),
        number_(double(value)) {}
  NestedNumbers(std::initializer_list<NestedNumbers> rows) : rows_(rows) {}
  /// The shape, of rows that are all alike. Throws Error(input) where they are not.
  Shape shape() const;
  bool whole() const;
  /// Calls visit(integer, number) for each in order.
  template <class Visit> void each(const Visit& visit) const {
    if (scalar_) visit(integer_, number_);
    for (const NestedNumbers& row : rows_) row.each(visit);
  }

 private:
  bool scalar_ = false, whole_ = true;
  int64_t integer_ = 0;
  double number_ = 0;
  std::vector<NestedNumbers> rows_;
};
/// tensor({{1, 2}, {3, 4}}) is i64, tensor({{1., 2.}, {3., 4.}}) f32, unless options say otherwise.
Tensor tensor(const NestedNumbers& values);
Tensor tensor(const NestedNumbers& values, TensorOptions options);
/// A tensor on memory that somebody else made, with no copy: it is not freed but `done` is called when no tensor needs
/// it. It is in the ledger as `borrowed`. Memory of a GPU is there for what its compute stream runs from now on; the
/// last tensor that goes waits for that stream, or, where there is no context any more, for the whole GPU, and then
/// calls `done`.
Tensor from_blob(void* data, const Shape& shape, DType dtype = DType::f32, std::function<void()> done = {},
                 Device device = kCpu);

/// Random numbers follow from `seed` from now on, as if none had been drawn in this step: those below, dropout's, and
/// the initial values of parameters that are made from now on. On several ranks all give the same seed, and draw the
/// same numbers. A run that a config describes has its seed there.
void manual_seed(uint64_t seed);
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
/// The next numbers of Generator(name), which without a name is one for all such calls: a name keeps the numbers what
/// they are when another call is added before.
Tensor randn(const Shape& shape, TensorOptions options = {});
Tensor randn(const Shape& shape, std::string_view name, TensorOptions options = {});
Tensor rand(const Shape& shape, TensorOptions options = {});
Tensor rand(const Shape& shape, std::string_view name, TensorOptions options = {});
Tensor randn_like(const Tensor& x, std::string_view name = "");
Tensor rand_like(const Tensor& x, std::string_view name = "");
/// Integers in [low, high), i64 unless dtype says otherwise; both within ±2^53.
Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options = DType::i64);
Tensor randint(int64_t low, int64_t high, const Shape& shape, std::string_view name,
               TensorOptions options = DType::i64);
/// 0 … count - 1 in random order, i64.
Tensor randperm(int64_t count, std::string_view name = "", std::optional<Device> device = {});
/// 1 with probability p[i], else 0; of p's dtype. Waits for the device, to refuse what is no probability.
Tensor bernoulli(const Tensor& p, std::string_view name = "");
/// `count` columns drawn from each row of p (rows, columns), or of one row (columns), with probabilities in the ratio
/// of its numbers, which are not negative: i64. Without replacement none comes twice. Waits for the device, to refuse
/// negative weights and rows with too few above 0.
Tensor multinomial(const Tensor& p, int64_t count, std::string_view name = "", bool replacement = false);
/// Row i has a one in column labels[i]. labels: i64 (N); result: (N, classes). Throws for a label out of range.
Tensor one_hot(const Tensor& labels, int64_t classes, DType dtype = DType::f32);

// --- in place ------------------------------------------------------------------------------------------------------
/// Refused for a computed tensor while operations are recorded.
void fill_(const Tensor& x, Scalar value);

}  // namespace shardgrad
