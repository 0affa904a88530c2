#include <shardgrad/certify/registry_cases.h>

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

// Extents in eights, which may be read as packs, and not; one beyond a tile of 64, and a depth beyond one of 32; and a
// product so large that the CPU packs its operands.
void add_matmul_sizes(std::vector<OpCase>& cases) {
  auto add = [&](bool ta, bool tb, Shape a, Shape b) {
    add_size_case(cases, "matmul", [=](Inputs in) { return matmul(in[0], in[1], ta, tb); }, {{a}, {b}});
  };
  add(false, true, {72, 40}, {24, 40});
  add(false, false, {17, 33}, {33, 65});
  add(true, false, {33, 17}, {33, 31});
  add(true, true, {2, 3, 5}, {2, 65, 3});
  add(false, false, {33, 127}, {127, 65});
  add(false, false, {128, 257}, {257, 8});  // a few columns of a product that large
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
  auto add = [&](Activation activation, const char* label, Shape x, Shape weight) {
    add_size_case(
        cases, "linear", [=](Inputs in) { return linear(in[0], in[1], in[2], activation); },
        {{x}, {weight}, {{weight[0]}}}, label);
  };
  add(Activation::none, "", {17, 33}, {65, 33});
  add(Activation::relu, "relu, ", {24, 40}, {72, 40});
  add(Activation::gelu_tanh, "gelu, ", {3, 11, 33}, {31, 33});
  // Up to 64 x 64 x 64 the CPU's own loops multiply, from there on a library where there is one.
  for (int64_t rows : {64, 65})
    for (auto [label, activation] : std::span(activations).last(2)) add(activation, label, {rows, 64}, {64, 64});
  // Few rows, and few columns, of more than 4096 weights are multiplied in ways of their own.
  add(Activation::none, "few rows, ", {8, 67}, {70, 67});
  add(Activation::none, "few columns, ", {5, 1030}, {4, 1030});
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
  for (const Shape& shape : kOddRows) add_size_case(cases, "layer_norm", layer, {{shape}, {{shape[1]}}, {{shape[1]}}});
}

void add_batch_norms(std::vector<OpCase>& cases) {
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
  auto alone = [](Inputs in) { return sync_batch_norm(in[0], in[1], in[2], [](const Tensor&) {}).y; };
  add_case(cases, "sync_batch_norm", "", alone, {{{6, 3}}, {{3}}, {{3}}});
  add_case(cases, "sync_batch_norm", "no samples", alone, {{{0, 3}}, {{3}}, {{3}}});
  add_case(cases, "sync_batch_norm", "frozen scale", alone, {{{6, 3}}, constant({3}), constant({3})});
  add_case(cases, "sync_batch_norm", "plain",
           [](Inputs in) { return sync_batch_norm(in[0], Tensor(), Tensor(), [](const Tensor&) {}).y; }, {{{6, 3}}});
  auto wide = [](const Tensor& x) { return x.dtype() == DType::f64 ? x : cast(x, DType::f32); };
  auto given = [wide](Inputs in) { return batch_norm_apply(in[0], wide(in[1]), wide(in[2]), in[3], in[4]); };
  add_case(cases, "batch_norm_apply", "", given, {{{6, 3}}, constant({3}), constant({3}, 0.5, 2), {{3}}, {{3}}});
  add_case(cases, "batch_norm_apply", "no samples", given,
           {{{0, 3}}, constant({3}), constant({3}, 0.5, 2), {{3}}, {{3}}});
  add_case(cases, "batch_norm_apply", "plain",
           [wide](Inputs in) { return batch_norm_apply(in[0], wide(in[1]), wide(in[2]), Tensor(), Tensor()); },
           {{{6, 3}}, constant({3}), constant({3}, 0.5, 2)});
  // Of few samples among many columns some would lie so close together that their variance is lost.
  for (const Shape& shape : {Shape{33, 31}, Shape{257, 5}, Shape{17, 257}}) {
    InputSpec feature{{shape[1]}};
    add_size_case(cases, "batch_norm", batch, {{shape}, feature, feature});
    add_size_case(cases, "sync_batch_norm", alone, {{shape}, feature, feature});
    add_size_case(cases, "batch_norm_apply", given,
                  {{shape}, constant({shape[1]}), constant({shape[1]}, 0.5, 2), feature, feature});
  }
}

void add_dropouts(std::vector<OpCase>& cases) {
  for (const Shape& shape : {Shape{}, Shape{37}, Shape{5, 33}, Shape{0, 5}})
    for (double p : {0.0, 0.3})
      add_case(cases, "dropout", concat("p = ", p, " ", shape), [p](Inputs in) { return dropout(in[0], p, 11, 5, 3); },
               {{shape}});
  for (const Shape& shape : kOddSizes)
    add_size_case(cases, "dropout", [](Inputs in) { return dropout(in[0], 0.3, 11, 5, 3); }, {{shape}});
}

// Numbers below 1, of larger ones few weights would count; where a row sees one key, the gradient of its score is a
// difference of equal numbers, which a large special value would magnify without a small scale.
void add_attentions(std::vector<OpCase>& cases) {
  auto call_with = [](AttentionOptions options) {
    return [options](Inputs in) { return attention(in[0], in.size() > 1 ? in[1] : Tensor(), options); };
  };
  auto add = [&](const char* note, Shape qkv, AttentionOptions options) {
    InputSpec starts = index_below(qkv[1] + 1, {qkv[0]});
    add_case(cases, "attention", note, call_with(options), {{qkv, -1, 1}});
    add_case(cases, "attention", concat(note, ", starts"), call_with(options), {{qkv, -1, 1}, starts});
  };
  AttentionOptions masked{.heads = 2, .scale = 0.3, .dropout = 0.3, .seed = 11, .stream = 5, .first_sample = 3};
  add("one head", {2, 5, 12}, {.heads = 1});
  add("two heads", {3, 4, 18}, {.heads = 2});
  add("shared keys", {2, 5, 16}, {.heads = 4, .kv_heads = 2, .scale = 0.5});
  add("dropout", {2, 5, 18}, masked);
  add("one place", {3, 1, 9}, {.heads = 1, .scale = 0.1});
  add("no places", {2, 0, 6}, {.heads = 1});
  add("no samples", {0, 3, 6}, {.heads = 1});
  add_size_case(cases, "attention", call_with(masked), {{{2, 33, 48}, -1, 1}});
  add_size_case(cases, "attention", call_with({.heads = 2, .kv_heads = 1}),
                {{{2, 37, 80}, -1, 1}, index_below(20, {2})});
}

void add_losses(std::vector<OpCase>& cases) {
  for (auto count : {std::optional<double>(), std::optional(10.0)}) {
    std::string label = count ? "given count" : "mean";
    auto square = [count](Inputs in) { return mse_loss(in[0], in[1], count); };
    add_case(cases, "mse_loss", label, square, {{{4, 3}}, {{4, 3}}});
    add_case(cases, "mse_loss", label + ", constant target", square, {{{4, 33}}, constant({4, 33})});
    add_case(cases, "mse_loss", label + ", no samples", square, {{{0, 3}}, {{0, 3}}});
    auto bounded = [count](Inputs in) { return huber_loss(in[0], in[1], 0.75, {count}); };
    add_case(cases, "huber_loss", label, bounded, {{{4, 3}}, {{4, 3}}});
    add_case(cases, "huber_loss", label + ", constant target", bounded, {{{4, 33}}, constant({4, 33})});
    add_case(cases, "huber_loss", label + ", no samples", bounded, {{{0, 3}}, {{0, 3}}});
    auto entropy = [count](Inputs in) { return cross_entropy(in[0], in[1], count); };
    add_case(cases, "cross_entropy", label, entropy, {{{5, 4}}, index_below(4, {5})});
    add_case(cases, "cross_entropy", label + ", wide", entropy, {{{3, 33}}, index_below(33, {3})});
    add_case(cases, "cross_entropy", label + ", no samples", entropy, {{{0, 4}}, index_below(4, {0})});
    add_case(cases, "cross_entropy", label + ", some ignored",
             [count](Inputs in) { return cross_entropy(in[0], in[1], count, 1); }, {{{9, 3}}, index_below(3, {9})});
    add_case(cases, "cross_entropy", label + ", padded classes",
             [count](Inputs in) { return cross_entropy(in[0], in[1], count, 1, 4); }, {{{5, 7}}, index_below(4, {5})});
    add_case(cases, "cross_entropy", label + ", all ignored",
             [count](Inputs in) { return cross_entropy(in[0], in[1], count, 0); }, {{{4, 3}}, index_below(1, {4})});
  }
  for (const Shape& shape : kOddSizes) {
    add_size_case(cases, "mse_loss", [](Inputs in) { return mse_loss(in[0], in[1]); }, {{shape}, {shape}});
    add_size_case(cases, "huber_loss", [](Inputs in) { return huber_loss(in[0], in[1], 0.75); }, {{shape}, {shape}});
  }
  for (const Shape& shape : kOddRows)
    add_size_case(cases, "cross_entropy", [](Inputs in) { return cross_entropy(in[0], in[1], 0, 1); },
                  {{shape}, index_below(shape[1], {shape[0]})});
  add_size_case(
      cases, "cross_entropy", [](Inputs in) { return cross_entropy(in[0], in[1], 0, 1, 1025); },
      {{{3, 1033}}, index_below(1025, {3})}, "padded classes ");
}

void add_linear_losses(std::vector<OpCase>& cases) {
  auto call_with = [](LinearCrossEntropyOptions options) {
    return [options](Inputs in) { return linear_cross_entropy(in[0], in[1], in[2], options); };
  };
  auto add = [&](const std::string& note, int64_t rows, LinearCrossEntropyOptions options, bool x_moves = true,
                 bool weight_moves = true) {
    InputSpec x{{rows, 3}, -1, 1}, weight{{7, 3}, -1, 1};
    if (!x_moves) x = constant({rows, 3}, -1, 1);
    if (!weight_moves) weight = constant({7, 3}, -1, 1);
    add_case(cases, "linear_cross_entropy", note, call_with(options), {x, weight, index_below(5, {rows})});
  };
  for (int64_t rows : {0, 2}) {
    std::string note = rows ? "two rows at a time, " : "";
    add(note + "mean", 5, {.rows = rows});
    add(note + "given count", 5, {.count = 10, .rows = rows});
    add(note + "padded", 4, {.ignore_index = 1, .classes = 5, .rows = rows});
    add(note + "no samples", 0, {.rows = rows});
    add(note + "frozen weight", 3, {.rows = rows}, true, false);
    add(note + "input without grad", 3, {.rows = rows}, false, true);
  }
  std::vector<InputSpec> large{{{33, 31}, -1, 1}, {{65, 31}, -1, 1}, index_below(60, {33})};
  add_size_case(cases, "linear_cross_entropy", call_with({.classes = 60}), large);
  add_size_case(cases, "linear_cross_entropy", call_with({.count = 33, .rows = 16}), large, "16 rows at a time, ");
}

}  // namespace

static void add_reduction_sizes(std::vector<OpCase>& cases) {
  for (const Shape& shape : kOddSizes) {
    add_size_case(
        cases, "sum", [](Inputs in) { return sum(in[0]); }, {{shape}}, "all of ");
    add_size_case(
        cases, "mean", [](Inputs in) { return mean(in[0]); }, {{shape}}, "all of ");
    add_size_case(cases, "norm", [](Inputs in) { return norm(in[0]); }, {{shape}});
    if (shape.ndim() == 2)
      for (int dim : {0, 1})
        add_size_case(
            cases, "norm", [dim](Inputs in) { return norm(in[0], dim); }, {{shape}}, concat("along ", dim, " "));
  }
  add_size_case(
      cases, "sum", [](Inputs in) { return sum(in[0], 1); }, {{{2, 4099}}}, "dim 1 of ");
  for (const Shape& shape : kOddRows)
    for (int dim : {0, 1}) {
      std::string label = concat("dim ", dim, " of ");
      add_size_case(
          cases, "sum", [dim](Inputs in) { return sum(in[0], dim); }, {{shape}}, label);
      add_size_case(
          cases, "mean", [dim](Inputs in) { return mean(in[0], dim); }, {{shape}}, label);
      add_size_case(
          cases, "max", [dim](Inputs in) { return max(in[0], dim).values; }, {{shape}}, label);
      add_size_case(
          cases, "argmax", [dim](Inputs in) { return argmax(in[0], dim); }, {constant(shape)}, label);
    }
  for (const Shape& shape : {Shape{33, 31}, Shape{3, 1025}}) {
    add_size_case(cases, "softmax", [](Inputs in) { return softmax(in[0]); }, {{shape}});
    add_size_case(cases, "log_softmax", [](Inputs in) { return log_softmax(in[0]); }, {{shape}});
  }
}

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
                         ValuesAndIndex result = max(in[0], dim, keepdim);
                         return std::vector<Tensor>{result.values, result.index};
                       },
                       x});
      add_case(cases, "argmax", label, [=](Inputs in) { return argmax(in[0], dim, keepdim); }, {constant({4, 3, 5})});
    }
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 5}, Shape{2, 3, 33}, Shape{0, 5}}) {
    add_case(cases, "softmax", concat(shape), [](Inputs in) { return softmax(in[0]); }, {{shape}});
    add_case(cases, "log_softmax", concat(shape), [](Inputs in) { return log_softmax(in[0]); }, {{shape}});
  }
  add_reduction_sizes(cases);
}

void add_layer_cases(std::vector<OpCase>& cases) {
  add_matmuls(cases);
  add_matmul_sizes(cases);
  add_linears(cases);
  add_normalizations(cases);
  add_batch_norms(cases);
  add_dropouts(cases);
  add_attentions(cases);
  add_losses(cases);
  add_linear_losses(cases);
}

}  // namespace shardgrad
