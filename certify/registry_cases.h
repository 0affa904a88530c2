#pragma once
// The parts of op_cases(), by file, and the shorthand they are written in.

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/certify/registry.h>
#include <shardgrad/core/context.h>

namespace shardgrad {

using Inputs = std::span<const Tensor>;

void add_creation_cases(std::vector<OpCase>& cases);
void add_elementwise_cases(std::vector<OpCase>& cases);
void add_function_cases(std::vector<OpCase>& cases);
void add_shape_cases(std::vector<OpCase>& cases);
void add_reduction_cases(std::vector<OpCase>& cases);
void add_order_cases(std::vector<OpCase>& cases);
void add_image_cases(std::vector<OpCase>& cases);
void add_layer_cases(std::vector<OpCase>& cases);
void add_transformer_cases(std::vector<OpCase>& cases);
void add_speed_cases(std::vector<OpCase>& cases);

inline InputSpec constant(Shape shape, double low = -2, double high = 2) {
  return {shape, low, high, InputSpec::Kind::constant};
}
/// Integers in [0, below).
inline InputSpec index_below(int64_t below, Shape shape) { return {shape, 0, double(below), InputSpec::Kind::index}; }
inline InputSpec flags(Shape shape) { return {shape, 0, 2, InputSpec::Kind::flag}; }

/// A case of an operation with one result.
template <class Function>
void add_case(std::vector<OpCase>& cases, std::string op, std::string variant, Function call,
              std::vector<InputSpec> inputs) {
  cases.push_back({std::move(op), std::move(variant), [call](Inputs in) { return std::vector<Tensor>{call(in)}; },
                   std::move(inputs)});
}

inline std::string shapes_of(const std::vector<InputSpec>& inputs) {
  std::string shapes;
  for (const InputSpec& input : inputs) shapes += concat(shapes.empty() ? "" : " ", input.shape);
  return shapes;
}

/// For operations on elements, and on rows of them: beside multiples of a warp, of a block of 256, of the 1024 elements
/// that it may take in packs of four, and of chunks of 4096.
inline const Shape kOddSizes[] = {{33, 31}, {1025}, {4099}};
inline const Shape kOddRows[] = {{33, 31}, {257, 5}, {3, 1025}};

/// A case of sizes. Choose extents at which a kernel does something else than in the middle: more than a block's worth
/// that is no multiple of a vector (1025, 4099), more rows than a warp or a tile has (33, 257). The first one under an
/// operation and note is tried a second time with each input one element after an aligned address.
template <class Function>
void add_size_case(std::vector<OpCase>& cases, const std::string& op, Function call, std::vector<InputSpec> inputs,
                   const std::string& note = "") {
  auto add = [&](bool unaligned) {
    add_case(cases, op, concat(unaligned ? "unaligned " : "", note, shapes_of(inputs)), call, inputs);
    cases.back().purpose = Purpose::sizes;
    cases.back().unaligned = unaligned;
  };
  bool first = std::ranges::none_of(cases, [&](const OpCase& each) {
    return each.op == op && each.unaligned && each.variant.starts_with("unaligned " + note + "[");
  });
  add(false);
  if (first) add(true);
}

/// Inputs are drawn from [low, high).
struct Numbers {
  double low = -2, high = 2;
};
inline const Shape kFewElements[] = {{}, {1}, {7}, {3, 5}, {2, 3, 33}, {0}, {3, 0}};

/// All cases, but for speed, of a function of one element.
template <class Function>
void add_unary_cases(std::vector<OpCase>& cases, const std::string& op, Function function, Numbers numbers = {},
                     const std::string& note = "") {
  auto call = [function](Inputs in) { return function(in[0]); };
  size_t first = cases.size();
  for (const Shape& shape : kFewElements)
    add_case(cases, op, concat(note, shape), call, {{shape, numbers.low, numbers.high}});
  for (const Shape& shape : kOddSizes) add_size_case(cases, op, call, {{shape, numbers.low, numbers.high}}, note);
  for (size_t i = first; i < cases.size(); ++i) cases[i].elementwise = true;
}

/// A large case, on which speed is measured. Several sizes may be given: hosts leave out those of more than a few
/// billion floating-point operations.
template <class Function>
void add_speed_case(std::vector<OpCase>& cases, std::string op, Function call, std::vector<InputSpec> inputs) {
  add_case(cases, std::move(op), shapes_of(inputs), call, inputs);
  cases.back().purpose = Purpose::speed;
}

/// What draw() makes of the first random numbers of a name: the same at each call.
template <class Draw> Tensor first_of(const Draw& draw) {
  Progress before = std::exchange(progress(), {});
  Tensor y = draw();
  progress() = std::move(before);
  return y;
}

}  // namespace shardgrad
