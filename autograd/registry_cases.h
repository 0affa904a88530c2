#pragma once
// The parts of op_cases(), one per file, and the shorthand they are written in.

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/registry.h>

namespace shardgrad {

using Inputs = std::span<const Tensor>;

void add_creation_cases(std::vector<OpCase>& cases);
void add_elementwise_cases(std::vector<OpCase>& cases);
void add_shape_cases(std::vector<OpCase>& cases);
void add_reduction_cases(std::vector<OpCase>& cases);
void add_layer_cases(std::vector<OpCase>& cases);
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

/// A large case, on which speed is measured. `flops`: floating-point operations of one call, where arithmetic may be
/// what limits it. Several sizes may be given: hosts leave out those of more than a few billion operations.
template <class Function>
void add_speed_case(std::vector<OpCase>& cases, std::string op, Function call, std::vector<InputSpec> inputs,
                    double flops = 0) {
  std::string shapes;
  for (const InputSpec& input : inputs) shapes += concat(shapes.empty() ? "" : " ", input.shape);
  add_case(cases, std::move(op), std::move(shapes), call, std::move(inputs));
  cases.back().large = true;
  cases.back().flops = flops;
}

}  // namespace shardgrad
