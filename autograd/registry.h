#pragma once
// Every operation of ops.h with inputs to try it on. An operation is tested because it stands here: one test loops over
// all cases and checks gradients, dtypes, accumulation, devices and determinism (tests/autograd/op_registry_test.cpp).

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// One input: its shape and the numbers it is drawn from, uniform in [low, high).
struct InputSpec {
  Shape shape;
  double low = -2, high = 2;
  enum class Kind : uint8_t {
    differentiable,  ///< of the tried dtype, with gradient
    constant,        ///< of the tried dtype, without gradient
    index,           ///< i64
    flag,            ///< u8
  } kind = Kind::differentiable;
};

/// An operation with given options and inputs.
struct OpCase {
  std::string op;       ///< the function's name in ops.h
  std::string variant;  ///< what this case adds: options and shapes
  std::function<std::vector<Tensor>(std::span<const Tensor>)> call;
  std::vector<InputSpec> inputs;
  /// A result or gradient is a difference of numbers as large as the inputs, which cancel: 1 is its scale, not itself.
  bool cancels = false;
  bool large = false;  ///< for measuring speed, not for trying what is right
  /// Of a large case: floating-point operations of one call, where arithmetic may be what limits it.
  double flops = 0;

  std::string name() const { return op + " " + variant; }
  bool differentiable() const;
  /// The inputs in dtype and on device, the same numbers (rounded to the dtype) every time. Leaves without grad.
  std::vector<Tensor> make_inputs(DType dtype, Device device) const;
};

/// All cases of all operations to try them on, those of loaded libraries included.
std::vector<OpCase> op_cases();
/// Likewise the large cases, on which speed is measured (autograd/certify_speed.h).
std::vector<OpCase> speed_cases();

/// Adds the cases of a library's own operations, large ones too, while it is loaded; see registry_cases.h for the
/// shorthand.
struct OfferCases {
  explicit OfferCases(void (*add)(std::vector<OpCase>&));
};

}  // namespace shardgrad
