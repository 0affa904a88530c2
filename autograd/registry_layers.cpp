#include <shardgrad/autograd/registry_cases.h>

namespace shardgrad {
namespace {

void add_matmuls(std::vector<OpCase>& cases) {
  for (int flags = 0; flags < 4; ++flags) {
    bool ta = flags & 1, tb = flags & 2;
    auto add = [&](const char* note, int64_t m, int64_t k, int64_t n, std::initializer_list<int64_t> left,
                   std::initializer_list<int64_t> right) {
      auto shape_of = [](std::initializer_list<int64_t> lead, int64_t rows, int64_t columns, bool transposed) {
        std::vector<int64_t> extents(lead);
        extents.push_back(transposed ? columns : rows);
        extents.push_back(transposed ? rows : columns);
        return Shape(std::span<const int64_t>(extents));
      };
      add_case(cases, "matmul", concat(note, ta ? ", aᵀ" : "", tb ? ", bᵀ" : ""),
               [ta, tb](Inputs in) { return matmul(in[0], in[1], ta, tb); },
               {{shape_of(left, m, k, ta)}, {shape_of(right, k, n, tb)}});
    };
    add("matrices", 3, 5, 7, {}, {});
    add("one element", 1, 1, 1, {}, {});
    add("batch", 3, 5, 2, {4}, {4});
    add("two batch dimensions", 2, 3, 2, {2, 3}, {2, 3});
    add("batch and matrix", 3, 5, 2, {4}, {});
    add("matrix and batch", 3, 5, 2, {}, {4});
    add("no rows", 0, 5, 2, {}, {});
    add("no inner extent", 3, 0, 2, {}, {});
    add("no batch", 3, 5, 2, {0}, {});
  }
}

void add_linears(std::vector<OpCase>& cases) {
  const std::pair<const char*, Activation> activations[] = {
      {"", Activation::none}, {"relu, ", Activation::relu}, {"gelu, ", Activation::gelu_tanh}};
  for (auto [label, activation] : activations) {
    auto with_bias = [activation = activation](Inputs in) { return linear(in[0], in[1], in[2], activation); };
    auto without = [activation = activation](Inputs in) { return linear(in[0], in[1], Tensor(), activation); };
    add_case(cases, "linear", concat(label, "bias"), with_bias, {{{4, 5}}, {{3, 5}}, {{3}}});
    add_case(cases, "linear", concat(label, "no bias"), without, {{{4, 5}}, {{3, 5}}});
    add_case(cases, "linear", concat(label, "three dimensions"), with_bias, {{{2, 3, 5}}, {{17, 5}}, {{17}}});
    add_case(cases, "linear", concat(label, "a vector"), with_bias, {{{5}}, {{3, 5}}, {{3}}});
    add_case(cases, "linear", concat(label, "no rows"), with_bias, {{{0, 5}}, {{3, 5}}, {{3}}});
    add_case(cases, "linear", concat(label, "input without grad"), with_bias, {constant({4, 5}), {{3, 5}}, {{3}}});
    add_case(cases, "linear", concat(label, "frozen weight"), with_bias, {{{4, 5}}, constant({3, 5}), {{3}}});
  }
}

void add_normalizations(std::vector<OpCase>& cases) {
  auto layer = [](Inputs in) { return layer_norm(in[0], in[1], in[2]); };
  add_case(cases, "layer_norm", "", layer, {{{3, 7}}, {{7}}, {{7}}});
  add_case(cases, "layer_norm", "three dimensions", layer, {{{2, 3, 17}}, {{17}}, {{17}}});
  add_case(cases, "layer_norm", "one row", layer, {{{5}}, {{5}}, {{5}}});
  add_case(cases, "layer_norm", "no rows", layer, {{{0, 5}}, {{5}}, {{5}}});
  add_case(cases, "layer_norm", "weight only", [](Inputs in) { return layer_norm(in[0], in[1], Tensor()); },
           {{{3, 7}}, {{7}}});
  add_case(cases, "layer_norm", "plain", [](Inputs in) { return layer_norm(in[0], Tensor(), Tensor()); }, {{{3, 7}}});
  add_case(cases, "layer_norm", "frozen weight", layer, {{{3, 7}}, constant({7}), {{7}}});
  auto batch = [](Inputs in) { return batch_norm(in[0], in[1], in[2]).y; };
  add_case(cases, "batch_norm", "", batch, {{{6, 3}}, {{3}}, {{3}}});
  add_case(cases, "batch_norm", "wide", batch, {{{5, 33}}, {{33}}, {{33}}});
  add_case(cases, "batch_norm", "one sample", batch, {{{1, 3}}, {{3}}, {{3}}});
  add_case(cases, "batch_norm", "plain", [](Inputs in) { return batch_norm(in[0], Tensor(), Tensor()).y; }, {{{6, 3}}});
  cases.push_back({"batch_norm",
                   "with statistics",
                   [](Inputs in) {
                     BatchNormResult result = batch_norm(in[0], in[1], in[2]);
                     return std::vector<Tensor>{result.y, result.mean, result.rstd};
                   },
                   {{{6, 3}}, {{3}}, {{3}}}});
  auto wide = [](const Tensor& x) { return x.dtype() == DType::f64 ? x : cast(x, DType::f32); };
  auto given = [wide](Inputs in) { return batch_norm_apply(in[0], wide(in[1]), wide(in[2]), in[3], in[4]); };
  add_case(cases, "batch_norm_apply", "", given, {{{6, 3}}, constant({3}), constant({3}, 0.5, 2), {{3}}, {{3}}});
  add_case(cases, "batch_norm_apply", "no samples", given,
           {{{0, 3}}, constant({3}), constant({3}, 0.5, 2), {{3}}, {{3}}});
  add_case(cases, "batch_norm_apply", "plain",
           [wide](Inputs in) { return batch_norm_apply(in[0], wide(in[1]), wide(in[2]), Tensor(), Tensor()); },
           {{{6, 3}}, constant({3}), constant({3}, 0.5, 2)});
}

void add_dropouts(std::vector<OpCase>& cases) {
  for (const Shape& shape : {Shape{}, Shape{37}, Shape{5, 33}, Shape{0, 5}})
    for (double p : {0.0, 0.3})
      add_case(cases, "dropout", concat("p = ", p, " ", shape), [p](Inputs in) { return dropout(in[0], p, 11, 5, 3); },
               {{shape}});
}

void add_losses(std::vector<OpCase>& cases) {
  for (double count : {0.0, 10.0}) {
    std::string label = count ? "given count" : "mean";
    auto square = [count](Inputs in) { return mse_loss(in[0], in[1], count); };
    add_case(cases, "mse_loss", label, square, {{{4, 3}}, {{4, 3}}});
    add_case(cases, "mse_loss", label + ", constant target", square, {{{4, 33}}, constant({4, 33})});
    add_case(cases, "mse_loss", label + ", no samples", square, {{{0, 3}}, {{0, 3}}});
    auto entropy = [count](Inputs in) { return cross_entropy(in[0], in[1], count); };
    add_case(cases, "cross_entropy", label, entropy, {{{5, 4}}, index_below(4, {5})});
    add_case(cases, "cross_entropy", label + ", wide", entropy, {{{3, 33}}, index_below(33, {3})});
    add_case(cases, "cross_entropy", label + ", no samples", entropy, {{{0, 4}}, index_below(4, {0})});
    add_case(cases, "cross_entropy", label + ", some ignored",
             [count](Inputs in) { return cross_entropy(in[0], in[1], count, 1); }, {{{9, 3}}, index_below(3, {9})});
    add_case(cases, "cross_entropy", label + ", all ignored",
             [count](Inputs in) { return cross_entropy(in[0], in[1], count, 0); }, {{{4, 3}}, index_below(1, {4})});
  }
}

}  // namespace

void add_reduction_cases(std::vector<OpCase>& cases) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{37}, Shape{3, 5}, Shape{2, 3, 17}}) {
    std::vector<InputSpec> x{{shape}};
    add_case(
        cases, "sum", concat("all of ", shape), [](Inputs in) { return sum(in[0]); }, x);
    add_case(
        cases, "mean", concat("all of ", shape), [](Inputs in) { return mean(in[0]); }, x);
    add_case(
        cases, "norm", concat(shape), [](Inputs in) { return norm(in[0]); }, x);
  }
  add_case(cases, "sum", "of nothing", [](Inputs in) { return sum(in[0]); }, {{{0, 3}}});
  add_case(cases, "sum", "over an empty dim", [](Inputs in) { return sum(in[0], 0); }, {{{0, 3}}});
  for (bool keepdim : {false, true})
    for (int dim : {0, 1, -1}) {
      std::string label = concat("dim ", dim, keepdim ? ", kept" : "");
      std::vector<InputSpec> x{{{4, 3, 5}}};
      add_case(
          cases, "sum", label, [=](Inputs in) { return sum(in[0], dim, keepdim); }, x);
      add_case(
          cases, "mean", label, [=](Inputs in) { return mean(in[0], dim, keepdim); }, x);
      cases.push_back({"max", label,
                       [=](Inputs in) {
                         MaxResult result = max(in[0], dim, keepdim);
                         return std::vector<Tensor>{result.values, result.index};
                       },
                       x});
      add_case(cases, "argmax", label, [=](Inputs in) { return argmax(in[0], dim, keepdim); }, {constant({4, 3, 5})});
    }
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 5}, Shape{2, 3, 33}, Shape{0, 5}}) {
    add_case(cases, "softmax", concat(shape), [](Inputs in) { return softmax(in[0]); }, {{shape}});
    add_case(cases, "log_softmax", concat(shape), [](Inputs in) { return log_softmax(in[0]); }, {{shape}});
  }
}

void add_layer_cases(std::vector<OpCase>& cases) {
  add_matmuls(cases);
  add_linears(cases);
  add_normalizations(cases);
  add_dropouts(cases);
  add_losses(cases);
}

}  // namespace shardgrad
