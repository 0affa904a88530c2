// Special values: what the polynomials and shortcuts of fast kernels forget first.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/certify/certify_outcome.h>
#include <shardgrad/core/float_mode.h>

namespace shardgrad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

/// Where a dtype ends. exp of the last three is about the largest and smallest normal number, subnormal, and beyond.
struct Ends {
  double subnormal, smallest_normal, between_subnormals, tolerance;
  std::array<double, 3> of_exp;
  std::vector<double> special() const {
    std::vector<double> all{kNan, kInfinity, -kInfinity, 0.0, -0.0, subnormal, -subnormal};
    for (double x : of_exp) all.insert(all.end(), {x, -x});
    return all;
  }
};

Ends ends_of(DType dtype) {
  if (dtype == DType::f16) return {0x1p-16, 0x1p-14, 0x1p-24, 0x1p-9, {10, 12, 18}};
  if (dtype == DType::bf16) return {0x1p-130, 0x1p-126, 0x1p-133, 1e-2, {88, 96, 104}};
  if (dtype == DType::f32) return {0x1p-130, 0x1p-126, 0x1p-149, 1e-5, {88, 96, 104}};
  return {0x1p-1030, 0x1p-1022, 0x1p-1074, 1e-12, {709, 720, 746}};
}

/// The case's inputs, with `special` first, in the middle and last in input `changed`.
std::vector<Tensor> with_special(const OpCase& op, DType dtype, Device device, size_t changed, double special) {
  KeepSubnormals mode;
  std::vector<Tensor> inputs = op.make_inputs(dtype, device);
  std::vector<double> numbers = values(inputs[changed]);
  for (size_t place : {size_t(0), numbers.size() / 2, numbers.size() - 1}) numbers[place] = special;
  const Shape& shape = inputs[changed].shape();
  copy_into(inputs[changed], from_vector(numbers, shape, {DType::f64, kCpu}).to(dtype).to(device));
  return as_leaves(op, std::move(inputs));
}

enum class Of { gradient, elementwise_gradient, result, elementwise_result };

/// What one element of each input makes may be a zero in the place of a subnormal, of its sign, or it is the same to
/// two roundings; a zero is a zero of the reference's sign. The gradient of one element by another may also be another
/// subnormal of its sign, for its factors are rounded, and a zero of any sign; so may a sum that is subnormal. A
/// gradient that met others is the same to a part of the largest one.
bool agrees(double actual, double expected, double allowed, const Ends& ends, Of of) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return actual == expected;
  bool same_sign = std::signbit(actual) == std::signbit(expected), small = std::abs(expected) < ends.smallest_normal;
  if (of == Of::elementwise_result && small) {
    bool zero = actual == 0 || (expected == 0 && std::abs(actual) == ends.subnormal);  // kept, where it counts as one
    return same_sign && (zero || std::abs(actual - expected) <= 2 * ends.between_subnormals);
  }
  if (of == Of::elementwise_gradient && small)
    return actual == 0 || std::abs(actual - expected) <= 2 * ends.between_subnormals ||
           ((same_sign || expected == 0) && std::abs(actual) <= ends.smallest_normal);
  if (of == Of::result && small && expected != 0)
    return actual == 0 || (same_sign && std::abs(actual) <= ends.smallest_normal);
  return std::abs(actual - expected) <= allowed;
}

bool is_gradient(Of of) { return of == Of::gradient || of == Of::elementwise_gradient; }

/// Any of `expected` will do, element by element. The tolerance's scale is the largest finite element, and at least 1,
/// as inputs and upstream have.
std::string disagreement(Of of, size_t number, const Tensor& actual, const std::vector<Tensor>& expected) {
  KeepSubnormals mode;
  std::vector<double> numbers = values(actual);
  std::vector<std::vector<double>> wanted;
  double scale = 1;
  for (const Tensor& each : expected) wanted.push_back(values(each));
  for (const auto& each : wanted)
    for (double value : each)
      if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  Ends ends = ends_of(is_floating(actual.dtype()) ? actual.dtype() : DType::f64);
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto good = [&](const auto& each) { return agrees(numbers[i], each[i], ends.tolerance * scale, ends, of); };
    if (std::ranges::none_of(wanted, good))
      return concat(is_gradient(of) ? "gradient " : "result ", number, " of shape ", actual.shape(), ", element ", i,
                    ", is ", numbers[i], ", expected ", wanted[0][i]);
  }
  return "";
}

std::string disagreement(const OpCase& op, const Outcome& actual, const std::vector<Outcome>& expected) {
  auto all = [&](auto member, size_t k) {
    std::vector<Tensor> tensors;
    for (const Outcome& each : expected) tensors.push_back((each.*member)[k]);
    return tensors;
  };
  Of of = op.elementwise ? Of::elementwise_result : Of::result;
  bool alone = op.elementwise && op.inputs.size() == 1 && !op.cancels;
  Of of_gradient = alone ? Of::elementwise_gradient : Of::gradient;
  for (size_t k = 0; k < actual.results.size(); ++k)
    if (std::string found = disagreement(of, k, actual.results[k], all(&Outcome::results, k)); !found.empty())
      return found;
  for (size_t i = 0; i < actual.grads.size(); ++i)
    if (actual.grads[i].defined())
      if (std::string found = disagreement(of_gradient, i, actual.grads[i], all(&Outcome::grads, i)); !found.empty())
        return found;
  return "";
}

constexpr DType kTried[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

/// The reference in the same dtype, once for each number that `special` may count as; none where the CPU has no such
/// kernel, which dtypes_without_reference tells.
std::vector<Outcome> expected_outcomes(const OpCase& op, DType dtype, size_t changed, double special) {
  KeepSubnormals mode;
  std::vector<Outcome> expected;
  std::vector<double> counts_as{special};
  if (std::abs(special) == ends_of(dtype).subnormal) counts_as.push_back(std::copysign(0, special));
  for (double number : counts_as) {
    try {
      expected.push_back(run_reference(op, with_special(op, dtype, kCpu, changed, number)));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::missing) throw;
      return {};
    }
  }
  return expected;
}

std::string try_special(const OpCase& op, DType dtype, Device device, size_t changed, double special) {
  std::vector<Outcome> expected = expected_outcomes(op, dtype, changed, special);
  if (expected.empty()) return "";
  std::vector<Tensor> leaves = with_special(op, dtype, device, changed, special);
  poison_gradients(op, leaves);
  std::string found = disagreement(op, run(op, leaves), expected);
  if (!found.empty()) found = concat("with ", special, " in input ", changed, ", in ", dtype, ", ", found);
  return found;
}

// At larger sizes other loops run, of the same functions: with everything that may come in f32, once.
bool is_tried(const OpCase& op, DType dtype, double special) {
  if (op.purpose != Purpose::sizes || (dtype == DType::f32 && !op.unaligned && !op.slow)) return true;
  return (std::isnan(special) || special == -kInfinity) && (dtype == DType::f32 || !op.slow);
}

bool has_reference(const OpCase& op, DType dtype) {
  try {
    run_reference(op, dtype);
  } catch (const Error& error) {
    return error.kind() != ErrorKind::missing;
  }
  return true;
}

}  // namespace

std::string dtypes_without_reference(std::span<const Subject> subjects) {
  std::string dtypes;
  for (DType dtype : kTried)
    if (!std::ranges::all_of(subjects, [&](const Subject& subject) { return has_reference(subject.op, dtype); }))
      dtypes += concat(dtypes.empty() ? "" : ", ", dtype);
  return dtypes;
}

std::string check_special_values(const Subject& subject, Device device) {
  const OpCase& op = subject.op;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const InputSpec& spec = op.inputs[i];
    bool of_the_dtype = differentiable(spec) || spec.kind == InputSpec::Kind::constant;
    if (!of_the_dtype || spec.shape.numel() == 0) continue;
    for (DType dtype : kTried)
      for (double special : ends_of(dtype).special()) {
        if (!is_tried(op, dtype, special)) continue;
        if (std::string found = try_special(op, dtype, device, i, special); !found.empty()) return found;
      }
  }
  return "";
}

}  // namespace shardgrad
