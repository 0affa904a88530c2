// Cases of autograd/ops/functions.h that no row of kernels/elementwise.h makes, and of what is made of other
// operations.

#include <shardgrad/certify/registry_cases.h>

namespace shardgrad {
namespace {

using Binary = Tensor (*)(const Tensor&, const Tensor&);

// Cases from `first` on are of operations that are made of others, which do the refusing.
void mark_made_of_others(std::vector<OpCase>& cases, size_t first) {
  for (size_t i = first; i < cases.size(); ++i) cases[i].made_of_others = true;
}

template <class Function>
void add_constant_cases(std::vector<OpCase>& cases, const std::string& op, Function function) {
  auto call = [function](Inputs in) { return function(in[0]); };
  for (const Shape& shape : kFewElements) add_case(cases, op, concat(shape), call, {constant(shape)});
  for (const Shape& shape : kOddSizes) add_size_case(cases, op, call, {constant(shape)});
}

template <class Function>
void add_pairs(std::vector<OpCase>& cases, const std::string& op, Function call, InputSpec::Kind kind, Numbers a = {},
               Numbers b = {}) {
  auto on_both = [call](Inputs in) { return call(in[0], in[1]); };
  const std::pair<Shape, Shape> pairs[] = {{{}, {}},         {{7}, {7}},    {{3, 5}, {5}},
                                           {{3, 1}, {1, 5}}, {{0, 3}, {3}}, {{2, 3}, {}}};
  for (const auto& [left, right] : pairs)
    add_case(cases, op, concat(left, " and ", right), on_both,
             {{left, a.low, a.high, kind}, {right, b.low, b.high, kind}});
  for (const auto& [left, right] : {std::pair<Shape, Shape>{{4099}, {4099}}, {{33, 31}, {31}}, {{3, 1025}, {3, 1}}})
    add_size_case(cases, op, on_both, {{left, a.low, a.high, kind}, {right, b.low, b.high, kind}});
}

void add_curves(std::vector<OpCase>& cases) {
  add_unary_cases(cases, "sin", sin, {-4, 4});
  add_unary_cases(cases, "cos", cos, {-4, 4});
  add_unary_cases(cases, "rsqrt", rsqrt, {0.25, 4});
  add_unary_cases(cases, "log1p", log1p, {-0.5, 4});
  add_unary_cases(cases, "expm1", expm1);
  add_unary_cases(cases, "erf", erf);
  add_unary_cases(cases, "softplus", softplus);
  add_unary_cases(cases, "leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.25); });
  add_unary_cases(cases, "huber", [](const Tensor& x) { return huber(x, 1.1); });
  add_unary_cases(cases, "elu", [](const Tensor& x) { return elu(x, 1.5); });
  add_constant_cases(cases, "floor", floor);
  add_constant_cases(cases, "ceil", ceil);
  add_constant_cases(cases, "trunc", trunc);
  add_constant_cases(cases, "round", round);
  add_constant_cases(cases, "sign", sign);
  constexpr auto kind = InputSpec::Kind::differentiable;
  add_pairs(cases, "maximum", maximum, kind);
  add_pairs(cases, "minimum", minimum, kind);
  add_pairs(cases, "pow", static_cast<Binary>(pow), kind, {0.5, 2}, {-2, 2});
  add_pairs(cases, "remainder", static_cast<Binary>(remainder), InputSpec::Kind::constant, {-4, 4}, {0.5, 2});
  add_pairs(cases, "floor_divide", static_cast<Binary>(floor_divide), InputSpec::Kind::constant, {-4, 4}, {0.5, 2});
}

void add_composites(std::vector<OpCase>& cases) {
  size_t first = cases.size();
  constexpr auto fixed = InputSpec::Kind::constant;
  add_unary_cases(cases, "reciprocal", reciprocal, {0.5, 2});
  add_unary_cases(cases, "square", square);
  add_constant_cases(cases, "isnan", isnan);
  add_constant_cases(cases, "isinf", isinf);
  add_constant_cases(cases, "isfinite", isfinite);
  add_constant_cases(cases, "logical_not", logical_not);
  add_pairs(cases, "logical_and", logical_and, fixed, {-0.5, 1}, {-0.5, 1});
  add_pairs(cases, "logical_or", logical_or, fixed, {-0.5, 1}, {-0.5, 1});
  add_pairs(cases, "logical_xor", logical_xor, fixed, {-0.5, 1}, {-0.5, 1});
  auto fill = [](Inputs in) { return masked_fill(in[0], in[1], -7); };
  add_case(cases, "masked_fill", "same shapes", fill, {{{3, 5}}, flags({3, 5})});
  add_case(cases, "masked_fill", "broadcast mask", fill, {{{3, 5}}, flags({3, 1})});
  add_size_case(cases, "masked_fill", fill, {{{33, 31}}, flags({31})});
  add_size_case(cases, "masked_fill", fill, {{{4099}}, flags({4099})});
  mark_made_of_others(cases, first);
}

}  // namespace

void add_function_cases(std::vector<OpCase>& cases) {
  size_t first = cases.size();
  add_curves(cases);
  add_composites(cases);
  for (size_t i = first; i < cases.size(); ++i) cases[i].elementwise = true;
}

}  // namespace shardgrad
