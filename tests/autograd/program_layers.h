#pragma once
// The other steps of programs.py: pairs, layers, losses, new tensors, and what has numbers of its own.

#include <shardgrad/autograd/rope_table.h>

#include <tests/autograd/program_steps.h>

namespace shardgrad::test::programs {

inline TensorOptions like(const Tensor& x) { return {x.dtype(), x.device()}; }
inline Tensor labels() { return tensor({2, 0, 3}); }

inline Steps pairs() {
  Steps steps{
      {"add", two(add)},
      {"sub", two(sub)},
      {"mul", two(mul)},
      {"div", two(div)},
      {"maximum", two(maximum)},
      {"minimum", two(minimum)},
      {"pow", two(pow)},
      {"remainder", two(remainder)},
      {"floor_divide", two(floor_divide)},
      {"matmul", two([](const Tensor& a, const Tensor& b) { return matmul(a, b); })},
      {"outer", two([](const Tensor& a, const Tensor& b) { return outer(shaped(a, {3}), shaped(b, {4})); })},
  };
#define SG_COMPARE(name, ...) \
  steps[#name] = two([](const Tensor& a, const Tensor& b) -> Tensor { return name(round(a), round(b)); });
  SG_RELATIONS(SG_COMPARE)
#undef SG_COMPARE
#define SG_JOIN(name) steps[#name] = two([](const Tensor& a, const Tensor& b) -> Tensor { return name(a > 0, b > 0); });
  SG_JOIN(logical_and)
  SG_JOIN(logical_or)
  SG_JOIN(logical_xor)
#undef SG_JOIN
  return steps;
}

/// A loss of two tensors, both (2, 3).
inline Step of_six(Tensor (*loss)(const Tensor&, const Tensor&)) {
  return [loss](const Args& a, const json&) { return loss(shaped(a[0], {2, 3}), shaped(a[1], {2, 3})); };
}

inline Steps losses() {
  return {
      {"mse_loss", of_six([](const Tensor& a, const Tensor& b) { return mse_loss(a, b); })},
      {"l1_loss", of_six([](const Tensor& a, const Tensor& b) { return l1_loss(a, b); })},
      {"smooth_l1_loss", of_six([](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b, 0.5); })},
      {"huber_loss", of_six([](const Tensor& a, const Tensor& b) { return huber_loss(a, b, 0.75); })},
      {"kl_div", of_six([](const Tensor& a, const Tensor& b) { return kl_div(log_softmax(a), softmax(b)); })},
      {"binary_cross_entropy_with_logits",
       of_six([](const Tensor& a, const Tensor& b) { return binary_cross_entropy_with_logits(a, sigmoid(b)); })},
      {"nll_loss", one([](const Tensor& x) {
         return nll_loss(log_softmax(shaped(x, {3, 4})), labels());
       })},
      {"cross_entropy", one([](const Tensor& x) {
         return cross_entropy(shaped(x, {3, 4}), labels());
       })},
      {"cross_entropy_smoothed", one([](const Tensor& x) {
         return cross_entropy(shaped(x, {3, 4}), labels(), ClassOptions{.label_smoothing = 0.1});
       })},
      {"linear_cross_entropy", two([](const Tensor& x, const Tensor& w) {
         return linear_cross_entropy(shaped(x, {3, 4}), shaped(w, {4, 4}), labels());
       })},
  };
}

// mean {0.5, -1, 0} and variance {1, 4, 0.25}
inline Tensor apply_batch_norm(const Tensor& x, const Tensor& weight) {
  TensorOptions statistics(x.dtype() == DType::f64 ? DType::f64 : DType::f32);
  return batch_norm_apply(shaped(x, {4, 3}), tensor({0.5, -1., 0.}, statistics), tensor({1., 0.5, 2.}, statistics),
                          shaped(weight, {3}), shaped(weight, {3}));
}
inline Tensor turned(const Tensor& x) {
  Tensor table = rope_table(3, 4, {.theta = 100}, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
  return rope(shaped(x, {1, 3, 12}), table, 1, 1);
}
inline Tensor normalised(const Tensor& x, const Tensor& w, bool sync) {
  Tensor weight = shaped(w, {3}), rows = shaped(x, {4, 3});
  return sync ? sync_batch_norm(rows, weight, weight + 1, [](const Tensor&) {}).y
              : batch_norm(rows, weight, weight + 1).y;
}

inline Steps layers() {
  return {
      {"linear", two([](const Tensor& x, const Tensor& w) {
         return linear(shaped(x, {3, 4}), shaped(w, {2, 4}), shaped(w, {2}));
       })},
      {"linear_gelu", two([](const Tensor& x, const Tensor& w) {
         return linear(shaped(x, {3, 4}), shaped(w, {2, 4}), Tensor(), Activation::gelu_tanh);
       })},
      {"layer_norm", two([](const Tensor& x, const Tensor& w) {
         return layer_norm(shaped(x, {3, 4}), shaped(w, {4}), shaped(w, {4}));
       })},
      {"rms_norm", two([](const Tensor& x, const Tensor& w) {
         return rms_norm(shaped(x, {3, 4}), shaped(w, {4}));
       })},
      {"group_norm", two([](const Tensor& x, const Tensor& w) {
         return group_norm(shaped(x, {2, 4, 3}), 2, shaped(w, {4}), shaped(w, {4}));
       })},
      {"batch_norm", two([](const Tensor& x, const Tensor& w) { return normalised(x, w, false); })},
      {"sync_batch_norm", two([](const Tensor& x, const Tensor& w) { return normalised(x, w, true); })},
      {"batch_norm_apply", two(apply_batch_norm)},
      {"swiglu", one([](const Tensor& x) {
         return swiglu(shaped(x, {2, 6}));
       })},
      {"attention", one([](const Tensor& x) {
         return attention(shaped(x, {2, 3, 12}), Tensor(), {.heads = 2, .kv_heads = 1});
       })},
      {"rope", one(turned)},
      {"embedding", one([](const Tensor& x) {
         return embedding(shaped(x, {4, 3}), tensor({{2, 0}, {3, 2}}));
       })},
      {"scatter_add", two([](const Tensor& x, const Tensor& y) {
         return scatter_add(shaped(x, {2, 4}), 1, tensor({{0, 3}, {1, 1}}), shaped(y, {2, 2}));
       })},
      {"adaptive_avg_pool2d", one([](const Tensor& x) {
         return adaptive_avg_pool2d(shaped(x, {1, 2, 4, 3}), {3, 2});
       })},
  };
}

inline Steps with_windows() {
  Steps steps;
  steps["conv1d"] = [](const Args& a, const json& n) {
    return conv1d(shaped(a[0], {2, 2, 5}), shaped(a[1], {2, 2, 2}), shaped(a[1], {2}),
                  {.stride = n["stride"].get<int64_t>(), .padding = 1});
  };
  steps["conv2d"] = [](const Args& a, const json& n) {
    int64_t groups = n["groups"];
    return conv2d(shaped(a[0], {1, 2, 4, 3}), shaped(a[1], {2, 2 / groups, 2, 3}), Tensor(),
                  {.stride = n["stride"].get<int64_t>(), .padding = {1, 0}, .groups = groups});
  };
  steps["max_pool2d"] = [](const Args& a, const json& n) {
    return max_pool2d(shaped(a[0], {1, 2, 4, 3}), 2, {.stride = n["stride"].get<int64_t>(), .padding = 1});
  };
  steps["avg_pool2d"] = [](const Args& a, const json& n) {
    return avg_pool2d(shaped(a[0], {1, 2, 4, 3}), {3, 2},
                      {.stride = n["stride"].get<int64_t>(), .padding = 1, .count_include_pad = false});
  };
  return steps;
}

inline Steps beside_new_tensors() {
  return {
      {"zeros_like", one([](const Tensor& x) { return x - zeros_like(x); })},
      {"ones_like", one([](const Tensor& x) { return x + ones_like(x); })},
      {"full_like", one([](const Tensor& x) { return x * full_like(x, 1.5); })},
      {"zeros", one([](const Tensor& x) { return x - zeros(x.shape(), like(x)); })},
      {"ones", one([](const Tensor& x) { return x + ones(x.shape(), like(x)); })},
      {"full", one([](const Tensor& x) { return x * full(x.shape(), 1.5, like(x)); })},
      {"arange", one([](const Tensor& x) { return reshape(x, {-1}) + arange(x.numel(), like(x)); })},
      {"eye", one([](const Tensor& x) {
         return shaped(x, {3, 4}) * eye(3, 4, like(x));
       })},
      {"linspace", one([](const Tensor& x) { return reshape(x, {-1}) * linspace(-1, 1, x.numel(), like(x)); })},
      {"one_hot", one([](const Tensor& x) {
         return matmul(one_hot(arange(4) % 3, 3, x.dtype()), shaped(x, {3, 2}));
       })},
  };
}

inline Tensor summed_products(const Args& a, const json& n) {
  Args operands;
  for (size_t i = 0; i < n["shapes"].size(); ++i) operands.push_back(shaped(a[i], shape_of(n["shapes"][i])));
  return einsum(n["equation"].get<std::string>(), operands);
}
inline Tensor picked(const Tensor& x) {
  Tensor rows = arange(x.size(0));
  return x[{rows, rows % double(x.size(1))}];
}

inline Steps with_numbers() {
  Steps steps;
  steps["affine"] = [](const Args& a, const json& n) { return double(n["scale"]) * a[0] + double(n["shift"]); };
  steps["rdiv"] = [](const Args& a, const json& n) { return double(n["value"]) / a[0]; };
  steps["power"] = [](const Args& a, const json& n) { return a[0].pow(n["exponent"]); };
  steps["rpow"] = [](const Args& a, const json& n) { return pow(double(n["value"]), a[0]); };
  steps["clamp"] = [](const Args& a, const json& n) { return a[0].clamp(n["low"], n["high"]); };
  steps["where"] = [](const Args& a, const json&) { return where(a[0] > a[1], a[0], 2 * a[1]); };
  steps["masked"] = [](const Args& a, const json& n) { return masked_fill(a[0], (a[0] < 0) | (a[0] > 2), n["value"]); };
  steps["kept"] = [](const Args& a, const json&) { return a[0][(a[0] >= 0) & ~(a[0] == 1)]; };
  steps["reshape"] = [](const Args& a, const json& n) { return reshape(a[0], shape_of(n["shape"])); };
  steps["expand"] = [](const Args& a, const json& n) { return expand(a[0], shape_of(n["shape"])); };
  steps["permute"] = [](const Args& a, const json& n) {
    return permute(a[0], std::span<const int>(n["order"].get<std::vector<int>>()));
  };
  steps["repeat"] = [](const Args& a, const json& n) {
    return repeat(a[0], std::span<const int64_t>(n["times"].get<std::vector<int64_t>>()));
  };
  steps["index"] = [](const Args& a, const json&) { return a[0][{Ellipsis, None, Slice(1)}]; };
  steps["picked"] = [](const Args& a, const json&) { return picked(a[0]); };
  steps["put"] = [](const Args& a, const json&) { return index_put(a[0], {0}, a[1]); };
  steps["einsum"] = summed_products;
  return steps;
}

inline Steps all_steps() {
  Steps steps;
  for (Steps part : {curves(), reductions(), arrangements(), along_dimensions(), pairs(), losses(), layers(),
                     with_windows(), beside_new_tensors(), with_numbers()})
    steps.merge(part);
  return steps;
}

/// The operation that a step is of, where it has another name.
inline const std::map<std::string, std::string> kOperationOf{{"gelu_tanh", "gelu"},
                                                             {"max_of_ties", "max"},
                                                             {"min_of_ties", "min"},
                                                             {"amax_of_ties", "amax"},
                                                             {"where_largest", "argmax"},
                                                             {"sum_dim", "sum"},
                                                             {"mean_dim", "mean"},
                                                             {"var_dim", "var"},
                                                             {"std_dim", "std"},
                                                             {"prod_dim", "prod"},
                                                             {"norm_dim", "norm"},
                                                             {"max_dim", "max"},
                                                             {"min_dim", "min"},
                                                             {"sort_down", "sort"},
                                                             {"top2", "topk"},
                                                             {"stack_self", "stack"},
                                                             {"cat_self", "cat"},
                                                             {"steps", "slice"},
                                                             {"order", "argsort"},
                                                             {"at_largest", "gather"},
                                                             {"at_smallest", "argmin"},
                                                             {"share_above", "mean"},
                                                             {"rare", "any"},
                                                             {"sum_dims", "sum"},
                                                             {"mean_dims", "mean"},
                                                             {"logsumexp_dims", "logsumexp"},
                                                             {"var_dims", "var"},
                                                             {"std_dims", "std"},
                                                             {"norm_dims", "norm"},
                                                             {"any_dims", "any"},
                                                             {"all_dims", "all"},
                                                             {"linear_gelu", "linear"},
                                                             {"cross_entropy_smoothed", "cross_entropy"},
                                                             {"rdiv", "div"},
                                                             {"power", "pow"},
                                                             {"rpow", "pow"},
                                                             {"masked", "masked_fill"},
                                                             {"kept", "masked_select"},
                                                             {"picked", "index"},
                                                             {"put", "index_put"}};

}  // namespace shardgrad::test::programs
