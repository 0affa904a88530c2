// The large cases. Inputs and results are mostly 4096 x 4096, so that a GPU is busy for longer than it takes to launch
// a kernel, and none fits in a cache. Left out are operations that move nothing (reshape) or move it between devices.

#include <shardgrad/certify/registry_cases.h>

namespace shardgrad {
namespace {

constexpr int64_t kSide = 4096;
const Shape kLarge{kSide, kSide};

// The input gives dtype and device.
void add_creations(std::vector<OpCase>& cases) {
  auto add = [&](const char* op, auto call) {
    add_speed_case(cases, op, [call](Inputs in) { return call(TensorOptions(in[0].dtype(), in[0].device())); },
                   {constant({1})});
  };
  add("full", [](TensorOptions options) { return full(kLarge, 2.5, options); });
  add("zeros", [](TensorOptions options) { return zeros(kLarge, options); });
  add("ones", [](TensorOptions options) { return ones(kLarge, options); });
  add("arange", [](TensorOptions options) { return arange(kLarge.numel(), options); });
  add("randn", [](TensorOptions options) { return first_of([&] { return randn(kLarge, "sample", options); }); });
  add("rand", [](TensorOptions options) { return first_of([&] { return rand(kLarge, "sample", options); }); });
  add("fill_", [](TensorOptions options) {
    Tensor x = empty(kLarge, options);
    fill_(x, -3);
    return x;
  });
  add_speed_case(cases, "one_hot", [](Inputs in) { return one_hot(in[0], kSide, in[1].dtype()); },
                 {index_below(kSide, {kSide}), constant({1})});
}

void add_binaries(std::vector<OpCase>& cases) {
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  add_speed_case(cases, "remainder", [](Inputs in) { return remainder(in[0], in[1]); },
                 {constant(kLarge), constant(kLarge, 0.5, 2)});
  add_speed_case(cases, "floor_divide", [](Inputs in) { return floor_divide(in[0], in[1]); },
                 {constant(kLarge), constant(kLarge, 0.5, 2)});
  const std::pair<const char*, Binary> arithmetic[] = {
      {"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}, {"maximum", maximum}, {"minimum", minimum}, {"pow", pow}};
  for (auto [op, call] : arithmetic)
    add_speed_case(cases, op, [call = call](Inputs in) { return call(in[0], in[1]); }, {{kLarge}, {kLarge, 0.5, 2}});
#define SG_RELATION(name, ...) \
  add_speed_case(cases, #name, [](Inputs in) { return name(in[0], in[1]); }, {constant(kLarge), constant(kLarge)});
  SG_RELATIONS(SG_RELATION)
#undef SG_RELATION
  add_speed_case(cases, "where", [](Inputs in) { return where(in[0], in[1], in[2]); },
                 {flags(kLarge), {kLarge}, {kLarge}});
}

void add_unaries(std::vector<OpCase>& cases) {
  auto add = [&](const char* op, auto call, double low = -2, double high = 2) {
    add_speed_case(cases, op, [call](Inputs in) { return call(in[0]); }, {{kLarge, low, high}});
  };
  add("affine", [](const Tensor& x) { return affine(x, -1.5, 0.25); });
  add("neg", neg);
#define SG_FUNCTION(name, takes, keeps, backward, low, high, ...) add(#name, name, low, high);
  SG_UNARIES(SG_FUNCTION, SG_NO_ROW, SG_NO_ROW)
#undef SG_FUNCTION
  add("gelu", [](const Tensor& x) { return gelu(x); });
  add("pow", [](const Tensor& x) { return pow(x, 3); });
  using Unary = Tensor (*)(const Tensor&);
  const std::pair<const char*, Unary> curves[] = {
      {"sin", sin}, {"cos", cos}, {"expm1", expm1}, {"erf", erf}, {"softplus", softplus}};
  for (auto [op, call] : curves) add(op, call);
  add("rsqrt", rsqrt, 0.25, 4);
  add("log1p", log1p, -0.5, 4);
  add("leaky_relu", [](const Tensor& x) { return leaky_relu(x); });
  add("huber", [](const Tensor& x) { return huber(x, 1); });
  add("elu", [](const Tensor& x) { return elu(x); });
  const std::pair<const char*, Unary> steps[] = {
      {"floor", floor}, {"ceil", ceil}, {"trunc", trunc}, {"round", round}, {"sign", sign}};
  for (auto [op, call] : steps)
    add_speed_case(cases, op, [call = call](Inputs in) { return call(in[0]); }, {constant(kLarge)});
  add("clamp", [](const Tensor& x) { return clamp(x, -0.75, 1.1); });
  add("clone", clone);
  add("cast", [](const Tensor& x) { return cast(x, x.dtype() == DType::f32 ? DType::bf16 : DType::f32); });
  add("dropout", [](const Tensor& x) { return dropout(x, 0.1, 11, 5); });
}

void add_shape_changes(std::vector<OpCase>& cases) {
  add_speed_case(cases, "permute", [](Inputs in) { return permute(in[0], {2, 0, 1}); }, {{{256, 256, 256}}});
  add_speed_case(cases, "transpose", [](Inputs in) { return transpose(in[0], 0, 1); }, {{kLarge}});
  add_speed_case(cases, "flip", [](Inputs in) { return flip(in[0], {0, 1}); }, {{kLarge}});
  add_speed_case(cases, "tril", [](Inputs in) { return tril(in[0]); }, {{kLarge}});
  add_speed_case(cases, "triu", [](Inputs in) { return triu(in[0]); }, {{kLarge}});
  add_speed_case(cases, "expand", [](Inputs in) { return expand(in[0], kLarge); }, {{{kSide}}});
  add_speed_case(cases, "slice", [](Inputs in) { return slice(in[0], 1, 1, kSide); }, {{kLarge}});
  add_speed_case(cases, "cat", [](Inputs in) { return cat(in, 1); }, {{{kSide, kSide / 2}}, {{kSide, kSide / 2}}});
  auto halves = [](Inputs in) {
    const int64_t sizes[] = {kSide / 2, kSide / 2};
    return split(in[0], sizes, 1);
  };
  add_speed_case(cases, "split", halves, {{kLarge}});
  // Four times as many rows as there are, so that nearly all are read.
  std::vector<InputSpec> rows{{{kSide / 4, kSide}}, index_below(kSide / 4, {kSide})};
  add_speed_case(
      cases, "index_select", [](Inputs in) { return index_select(in[0], 0, in[1]); }, rows);
  add_speed_case(
      cases, "embedding", [](Inputs in) { return embedding(in[0], in[1]); }, rows);
  add_speed_case(cases, "gather", [](Inputs in) { return gather(in[0], 1, in[1]); },
                 {{kLarge}, index_below(kSide, kLarge)});
  add_speed_case(cases, "scatter_add", [](Inputs in) { return scatter_add(in[0], 1, in[1], in[2]); },
                 {{kLarge}, index_below(kSide, kLarge), {kLarge}});
}

void add_rows(std::vector<OpCase>& cases) {
  auto add = [&](const char* op, auto call, InputSpec input) {
    add_speed_case(cases, op, [call](Inputs in) { return call(in[0]); }, {input});
  };
  add("sum", [](const Tensor& x) { return sum(x); }, {kLarge});
  add("mean", [](const Tensor& x) { return mean(x); }, {kLarge});
  add("norm", [](const Tensor& x) { return norm(x); }, {kLarge});
  add("max", [](const Tensor& x) { return max(x, -1).values; }, {kLarge});
  add(
      "argmax", [](const Tensor& x) { return argmax(x, -1); }, constant(kLarge));
  add("min", [](const Tensor& x) { return min(x, 0).values; }, {kLarge});
  add("amax", [](const Tensor& x) { return amax(x, 1); }, {kLarge});
  add("amin", [](const Tensor& x) { return amin(x, 0); }, {kLarge});
  add(
      "argmin", [](const Tensor& x) { return argmin(x, 0); }, constant(kLarge));
  add("softmax", [](const Tensor& x) { return softmax(x); }, {kLarge});
  add("log_softmax", [](const Tensor& x) { return log_softmax(x); }, {kLarge});
  add("cumsum", [](const Tensor& x) { return cumsum(x, 1); }, {kLarge});
  add("sort", [](const Tensor& x) { return sort(x).values; }, {kLarge});
  add("prod", [](const Tensor& x) { return prod(x, 1); }, {kLarge, 0.999, 1.001});
  InputSpec feature{{kSide}};
  add_speed_case(cases, "layer_norm", [](Inputs in) { return layer_norm(in[0], in[1], in[2]); },
                 {{kLarge}, feature, feature});
  add_speed_case(cases, "batch_norm", [](Inputs in) { return batch_norm(in[0], in[1], in[2]).y; },
                 {{kLarge}, feature, feature});
  add_speed_case(cases, "sync_batch_norm",
                 [](Inputs in) { return sync_batch_norm(in[0], in[1], in[2], [](const Tensor&) {}).y; },
                 {{kLarge}, feature, feature});
  auto wide = [](const Tensor& x) { return cast(x, DType::f32); };
  add_speed_case(cases, "batch_norm_apply",
                 [wide](Inputs in) { return batch_norm_apply(in[0], wide(in[1]), wide(in[2]), in[3], in[4]); },
                 {{kLarge}, constant({kSide}), constant({kSide}, 0.5, 2), feature, feature});
  add_speed_case(cases, "mse_loss", [](Inputs in) { return mse_loss(in[0], in[1]); }, {{kLarge}, constant(kLarge)});
  add_speed_case(cases, "huber_loss", [](Inputs in) { return huber_loss(in[0], in[1]); }, {{kLarge}, constant(kLarge)});
  add_speed_case(cases, "cross_entropy", [](Inputs in) { return cross_entropy(in[0], in[1]); },
                 {{kLarge}, index_below(kSide, {kSide})});
}

void add_images(std::vector<OpCase>& cases) {
  InputSpec images{{64, 64, 64, 64}}, channel{{64}};
  add_speed_case(cases, "batch_norm", [](Inputs in) { return batch_norm(in[0], in[1], in[2]).y; },
                 {images, channel, channel});
  add_speed_case(cases, "group_norm", [](Inputs in) { return group_norm(in[0], 8, in[1], in[2]); },
                 {images, channel, channel});
  add_speed_case(cases, "conv2d", [](Inputs in) { return conv2d(in[0], in[1], Tensor(), {.padding = 1}); },
                 {{{16, 64, 32, 32}}, {{64, 64, 3, 3}}});
  add_speed_case(cases, "max_pool2d", [](Inputs in) { return max_pool2d(in[0], 2); }, {images});
  add_speed_case(cases, "avg_pool2d", [](Inputs in) { return avg_pool2d(in[0], 2); }, {images});
}

void add_products(std::vector<OpCase>& cases) {
  for (int64_t n : {int64_t(1024), kSide}) {
    add_speed_case(cases, "matmul", [](Inputs in) { return matmul(in[0], in[1]); }, {{{n, n}}, {{n, n}}});
    add_speed_case(cases, "linear", [](Inputs in) { return linear(in[0], in[1], in[2]); }, {{{n, n}}, {{n, n}}, {{n}}});
  }
  add_speed_case(cases, "linear_cross_entropy", [](Inputs in) { return linear_cross_entropy(in[0], in[1], in[2]); },
                 {{{8192, 256}}, {{768, 256}}, index_below(768, {8192})});
  add_speed_case(cases, "attention", [](Inputs in) { return attention(in[0], Tensor(), {.heads = 12}); },
                 {{{2, 1024, 3 * 768}}});
}

}  // namespace

void add_speed_cases(std::vector<OpCase>& cases) {
  add_creations(cases);
  add_binaries(cases);
  add_unaries(cases);
  add_shape_changes(cases);
  add_rows(cases);
  add_images(cases);
  add_products(cases);
}

}  // namespace shardgrad
