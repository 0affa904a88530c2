// Special values: what the polynomials and shortcuts of fast kernels forget first.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <shardgrad/autograd/certify_outcome.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/float_mode.h>

namespace shardgrad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
// The last ones are where exp leaves the normal numbers of f32, and the range of all.
constexpr double kSpecial[] = {kNan, kInfinity, -kInfinity, 0.0, -0.0, 88, -88, 104, -104};

double subnormal(DType dtype) { return dtype == DType::f64 ? 0x1p-1030 : 0x1p-130; }
double smallest_normal(DType dtype) { return dtype == DType::f64 ? 0x1p-1022 : 0x1p-126; }
double tolerance(DType dtype) { return dtype == DType::bf16 ? 1e-2 : dtype == DType::f32 ? 1e-5 : 1e-12; }

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

/// A subnormal may be kept or become a zero of its sign.
bool agrees(double actual, double expected, double allowed, double normal) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return actual == expected;
  if (expected != 0 && std::abs(expected) < normal)
    return std::abs(actual) <= normal && std::signbit(actual) == std::signbit(expected);
  return std::abs(actual - expected) <= allowed;
}

/// Any of `expected` will do, element by element. The largest finite element is the tolerance's scale.
std::string disagreement(const char* what, size_t number, const Tensor& actual, const std::vector<Tensor>& expected,
                         double scale) {
  KeepSubnormals mode;
  std::vector<double> numbers = values(actual);
  std::vector<std::vector<double>> wanted;
  for (const Tensor& each : expected) wanted.push_back(values(each));
  for (const auto& each : wanted)
    for (double value : each)
      if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  DType dtype = is_floating(actual.dtype()) ? actual.dtype() : DType::f64;
  for (size_t i = 0; i < numbers.size(); ++i) {
    auto good = [&](const auto& each) {
      return agrees(numbers[i], each[i], tolerance(dtype) * scale, smallest_normal(dtype));
    };
    if (std::ranges::none_of(wanted, good))
      return concat(what, " ", number, " of shape ", actual.shape(), ", element ", i, ", is ", numbers[i],
                    ", expected ", wanted[0][i]);
  }
  return "";
}

std::string disagreement(const Outcome& actual, const std::vector<Outcome>& expected, double scale) {
  auto all = [&](auto member, size_t k) {
    std::vector<Tensor> tensors;
    for (const Outcome& each : expected) tensors.push_back((each.*member)[k]);
    return tensors;
  };
  for (size_t k = 0; k < actual.results.size(); ++k)
    if (std::string found = disagreement("result", k, actual.results[k], all(&Outcome::results, k), scale);
        !found.empty())
      return found;
  for (size_t i = 0; i < actual.grads.size(); ++i)
    if (actual.grads[i].defined())
      if (std::string found = disagreement("gradient", i, actual.grads[i], all(&Outcome::grads, i), scale);
          !found.empty())
        return found;
  return "";
}

/// The reference in the same dtype, once for each number that `special` may count as; none where the CPU has no such
/// kernel.
std::vector<Outcome> expected_outcomes(const OpCase& op, DType dtype, size_t changed, double special) {
  std::vector<Outcome> expected;
  std::vector<double> counts_as{special};
  if (special == subnormal(dtype)) counts_as.push_back(0);
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
  std::string found = disagreement(run(op, leaves), expected, op.cancels);
  if (!found.empty()) found = concat("with ", special, " in input ", changed, ", in ", dtype, ", ", found);
  return found;
}

}  // namespace

std::string check_special_values(const Subject& subject, Device device) {
  const OpCase& op = subject.op;
  bool large = op.purpose == Purpose::sizes;  // there other loops run, on the same dtypes
  std::vector<DType> dtypes{DType::f32};
  if (!large) dtypes.insert(dtypes.end(), {DType::f64, DType::bf16});
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const InputSpec& spec = op.inputs[i];
    bool of_the_dtype = differentiable(spec) || spec.kind == InputSpec::Kind::constant;
    if (!of_the_dtype || spec.shape.numel() == 0) continue;
    for (DType dtype : dtypes) {
      std::vector<double> specials(std::begin(kSpecial), std::end(kSpecial));
      specials.push_back(subnormal(dtype));
      for (double special : specials)
        if (std::string found = try_special(op, dtype, device, i, special); !found.empty()) return found;
    }
  }
  return "";
}

}  // namespace shardgrad
