#pragma once
// Is an operation's gradient right? gradcheck compares what backward writes with central differences in f64:
//
//     gradcheck([](std::span<const Tensor> in) { return mul(in[0], in[1]); }, {a, b});
//
// The result is weighted by fixed pseudo-random numbers before it is summed, so that a gradient which is right only for
// a uniform upstream gradient is caught.

#include <functional>
#include <span>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad {

struct GradcheckOptions {
  double step = 1e-5;                       ///< each element is moved this far up and down
  double absolute = 1e-7, relative = 1e-6;  ///< allowed: |analytic - numeric| <= absolute + relative * |numeric|
  uint64_t seed = 1;                        ///< of the upstream gradient
};

/// The element that agrees least.
struct GradcheckResult {
  int input = -1;     ///< -1: there was no element to compare
  int64_t index = 0;  ///< flat, row-major
  double analytic = 0, numeric = 0;
  double error = 0;  ///< the difference, as a part of what is allowed
};

using TensorFunction = std::function<Tensor(std::span<const Tensor>)>;
using TensorsFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// Checks fn's gradient with respect to every f64 input; inputs of integer dtypes are passed on. fn must be a
/// deterministic function of its arguments and give f64. Returns the worst element; throws Error(input) naming input,
/// index, and both values when it is outside the tolerance. The inputs are left as they are.
GradcheckResult gradcheck(const TensorFunction& fn, std::vector<Tensor> inputs, GradcheckOptions options = {});
/// The same for a function of several results; outputs without gradient are left out.
GradcheckResult gradcheck_all(const TensorsFunction& fn, std::vector<Tensor> inputs, GradcheckOptions options = {});

}  // namespace shardgrad
