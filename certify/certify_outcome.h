#pragma once
// What certificates are made of: cases that are run, and what came out.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/certify/registry.h>
#include <shardgrad/core/device.h>

namespace shardgrad {

struct Outcome {
  std::vector<Tensor> results, grads;
};

/// A case, and what it gave before anything was replaced.
struct Subject {
  OpCase op;
  Outcome exact, built_in;  ///< f64 by the reference kernels, f32 on the device
};

inline bool differentiable(const InputSpec& spec) { return spec.kind == InputSpec::Kind::differentiable; }

/// The inputs as given, those with a gradient as leaves that require it.
std::vector<Tensor> as_leaves(const OpCase& op, std::vector<Tensor> inputs);
/// Forward and backward; the gradients of the results are fixed numbers.
Outcome run(const OpCase& op, const std::vector<Tensor>& inputs);
Outcome run(const OpCase& op, DType dtype, Device device);
/// On the CPU by the reference kernels, and a library's own where there is no reference.
Outcome run_reference(const OpCase& op, const std::vector<Tensor>& inputs);
Outcome run_reference(const OpCase& op, DType dtype);

std::vector<double> values(const Tensor& tensor);
/// Empty, or the first element outside the tolerance: a part of the largest one, or of `scale` where that is larger.
std::string difference(const char* what, size_t number, const Tensor& actual, const std::vector<double>& expected,
                       double tolerance, double scale = 0);
std::string difference(const Outcome& actual, const Outcome& expected, double tolerance, double scale = 0);

/// Gives each leaf a gradient as well aligned as itself: NaN before the first pass, which overwrites; later ones add.
void poison_gradients(const OpCase& op, const std::vector<Tensor>& leaves);

// The properties that have a file of their own. Empty, or the first failure.

/// Each kernel of forward adds its result to what is there, when it is told to.
std::string check_forward_adds(const Subject& subject, Device device);
/// Each kernel of forward and backward leaves its operands as they are.
std::string check_kernels_inputs(const Subject& subject, Device device);
/// NaN, infinities, zeros, subnormals and the ends of exp, one at a time in each input, agree with the reference.
std::string check_special_values(const Subject& subject, Device device);
/// The dtypes in which some of these have no kernel for the CPU, so that special values cannot be compared there.
std::string dtypes_without_reference(std::span<const Subject> subjects);
/// The kernels of these cases that have no reference, for they are a library's own; only those that this kind of device
/// lacks, if one is given.
std::string kernels_without_reference(std::span<const OpCase> cases, std::optional<DeviceKind> lacking = {});

}  // namespace shardgrad
