#pragma once
// Every operation of ops.h with inputs to try it on. An operation is tested because it stands here: one test loops over
// all cases and checks gradients, dtypes, accumulation, devices and determinism (tests/certify/op_registry_test.cpp).

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

/// What a case is for.
enum class Purpose : uint8_t {
  promises,  ///< few elements, so that everything can be tried, central differences too
  sizes,     ///< extents where a vector, a warp, a block or a tile ends, or has just begun
  speed,     ///< many elements
};

/// An operation with given options and inputs.
struct OpCase {
  std::string op;       ///< the function's name in ops.h
  std::string variant;  ///< what this case adds: options and shapes
  std::function<std::vector<Tensor>(std::span<const Tensor>)> call;
  std::vector<InputSpec> inputs;
  /// A result or gradient is a difference of numbers as large as the inputs, which cancel: 1 is its scale, not itself.
  bool cancels = false;
  Purpose purpose = Purpose::promises;
  bool slow = false;       ///< few special values are tried, for the reference takes its time
  bool unaligned = false;  ///< the inputs begin one element after an aligned address
  /// Each element of a result is made of one element of each input: a zero has a sign.
  bool elementwise = false;
  /// The operation calls others, which stand in the graph and in refusals by their own names.
  bool made_of_others = false;

  std::string name() const { return op + " " + variant; }
  bool differentiable() const;
  /// The inputs in dtype and on device, the same numbers (rounded to the dtype) every time. Leaves without grad.
  std::vector<Tensor> make_inputs(DType dtype, Device device) const;
};

/// All cases of all operations for this purpose, those of loaded libraries included.
std::vector<OpCase> op_cases(Purpose purpose = Purpose::promises);

/// Memory for a tensor that begins one element after an aligned address, as a view may.
Tensor empty_unaligned(const Shape& shape, TensorOptions options);

/// Adds the cases of a library's own operations, for every purpose, while it is loaded; see registry_cases.h for the
/// shorthand.
struct OfferCases {
  explicit OfferCases(void (*add)(std::vector<OpCase>&));
};

}  // namespace shardgrad
