#include <shardgrad/certify/registry_cases.h>

namespace shardgrad {
namespace {

template <class Function>
void add_binary(std::vector<OpCase>& cases, const char* op, Function call, InputSpec::Kind kind, Numbers b = {}) {
  const std::pair<Shape, Shape> pairs[] = {{{}, {}},         {{7}, {7}},          {{3, 5}, {3, 5}},
                                           {{3, 5}, {5}},    {{5}, {3, 5}},       {{3, 1}, {1, 5}},
                                           {{2, 3, 17}, {}}, {{2, 1, 3}, {4, 1}}, {{0, 3}, {3}}};
  auto on_both = [call](Inputs in) { return call(in[0], in[1]); };
  for (const auto& [left, right] : pairs)
    add_case(cases, op, concat(left, " and ", right), on_both, {{left, -2, 2, kind}, {right, b.low, b.high, kind}});
  const std::pair<Shape, Shape> odd[] = {{{4099}, {4099}}, {{33, 31}, {31}}, {{3, 1025}, {3, 1}}, {{33, 64}, {64}}};
  for (const auto& [left, right] : odd)
    add_size_case(cases, op, on_both, {{left, -2, 2, kind}, {right, b.low, b.high, kind}});
}

void add_arithmetic(std::vector<OpCase>& cases) {
  constexpr auto kind = InputSpec::Kind::differentiable;
  add_binary(cases, "add", add, kind);
  add_binary(cases, "sub", sub, kind);
  add_binary(cases, "mul", mul, kind);
  add_binary(cases, "div", div, kind, {0.5, 2});
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  const std::pair<const char*, Binary> operations[] = {{"add", add}, {"sub", sub}, {"mul", mul}};
  for (auto [op, call] : operations)
    add_case(cases, op, "of a tensor with itself", [call = call](Inputs in) { return call(in[0], in[0]); }, {{{4, 3}}});
  add_case(cases, "div", "of a tensor by itself", [](Inputs in) { return div(in[0], in[0]); }, {{{4, 3}, 0.5, 2}});
  cases.back().cancels = true;
}

void add_comparisons(std::vector<OpCase>& cases) {
  constexpr auto kind = InputSpec::Kind::constant;
#define SG_RELATION(name, ...) add_binary(cases, #name, name, kind);
  SG_RELATIONS(SG_RELATION)
#undef SG_RELATION
  auto choose = [](Inputs in) { return where(in[0], in[1], in[2]); };
  add_case(cases, "where", "same shapes", choose, {flags({3, 5}), {{3, 5}}, {{3, 5}}});
  add_case(cases, "where", "broadcast condition", choose, {flags({3, 1}), {{3, 5}}, {{5}}});
  add_case(cases, "where", "broadcast values", choose, {flags({3, 5}), {{}}, {{3, 1}}});
  add_case(cases, "where", "empty", choose, {flags({0, 5}), {{0, 5}}, {{5}}});
  add_size_case(cases, "where", choose, {flags({4099}), {{4099}}, {{4099}}});
  add_size_case(cases, "where", choose, {flags({33, 31}), {{33, 1}}, {{31}}});
  add_size_case(cases, "where", choose, {flags({257, 1}), {{5}}, {{257, 5}}});
}

void add_functions(std::vector<OpCase>& cases) {
#define SG_FUNCTION(name, takes, keeps, backward, low, high, ...) add_unary_cases(cases, #name, name, {low, high});
  SG_UNARIES(SG_FUNCTION, SG_NO_ROW, SG_NO_ROW)
#undef SG_FUNCTION
  auto add = [&](const char* op, auto call, const char* note = "", Numbers numbers = {}) {
    add_unary_cases(cases, op, call, numbers, note);
  };
  add("affine", [](const Tensor& x) { return affine(x, -1.5, 0.25); });
  add(
      "affine", [](const Tensor& x) { return affine(x, 1, 3); }, "shift only ");
  add("neg", neg);
  add(
      "gelu", [](const Tensor& x) { return gelu(x); }, "erf ");
  add(
      "gelu", [](const Tensor& x) { return gelu(x, true); }, "tanh ");
  add(
      "pow", [](const Tensor& x) { return pow(x, 3); }, "cube ");
  add("pow", [](const Tensor& x) { return pow(x, -0.5); }, "inverse root ", {0.5, 4});
  add("clamp", [](const Tensor& x) { return clamp(x, -0.75, 1.1); });
}

DType other_dtype(const Tensor& x) { return x.dtype() == DType::f64 ? DType::f32 : DType::f64; }
Device other_device(const Tensor& x) { return x.device() == kMeta ? kMeta : x.device() == kCpu ? kAcc : kCpu; }

void add_conversions(std::vector<OpCase>& cases) {
  // There and back, so that the result has the input's dtype; through f32 an f64 number is rounded, so from a constant.
  add_unary_cases(cases, "clone", clone);
  auto to_integers = [](Inputs in) { return cast(in[0], DType::i32); };
  auto cast_and_back = [](Inputs in) { return cast(cast(in[0], other_dtype(in[0])), in[0].dtype()); };
  auto move_and_back = [](Inputs in) { return to_device(to_device(in[0], other_device(in[0])), in[0].device()); };
  for (const Shape& shape : kFewElements) {
    add_case(cases, "cast", concat("to integers ", shape), to_integers, {constant(shape, -20, 20)});
    add_case(cases, "cast", concat("there and back ", shape), cast_and_back, {constant(shape)});
    add_case(cases, "to_device", concat("there and back ", shape), move_and_back, {{shape}});
  }
  for (const Shape& shape : kOddSizes) {
    add_size_case(cases, "cast", to_integers, {constant(shape, -20, 20)}, "to integers ");
    add_size_case(cases, "cast", cast_and_back, {constant(shape)}, "there and back ");
    add_size_case(cases, "to_device", move_and_back, {{shape}});
  }
}

}  // namespace

void add_elementwise_cases(std::vector<OpCase>& cases) {
  size_t first = cases.size();
  add_arithmetic(cases);
  add_comparisons(cases);
  add_functions(cases);
  add_conversions(cases);
  for (size_t i = first; i < cases.size(); ++i) cases[i].elementwise = true;
}

}  // namespace shardgrad
