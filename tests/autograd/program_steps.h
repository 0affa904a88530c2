#pragma once
// What the steps of programs.py mean here: program_steps.py has the same names, and what they mean in PyTorch.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tests/autograd/support.h>

namespace shardgrad::test::programs {

using nlohmann::json;
using Args = std::vector<Tensor>;
using Step = std::function<Tensor(const Args&, const json&)>;
using Steps = std::map<std::string, Step>;

inline Shape shape_of(const json& extents) {
  return Shape(std::span<const int64_t>(extents.get<std::vector<int64_t>>()));
}

/// The elements of x, as often as they are needed, in this shape: so that a layer takes any tensor.
inline Tensor shaped(const Tensor& x, const Shape& shape) {
  Tensor flat = repeat(reshape(x, {x.numel()}), {(shape.numel() + x.numel() - 1) / x.numel()});
  return reshape(slice(flat, 0, 0, shape.numel()), shape);
}

inline Step one(Tensor (*f)(const Tensor&)) {
  return [f](const Args& a, const json&) { return f(a[0]); };
}
inline Step two(Tensor (*f)(const Tensor&, const Tensor&)) {
  return [f](const Args& a, const json&) { return f(a[0], a[1]); };
}
inline Step along(Tensor (*f)(const Tensor&, int)) {
  return [f](const Args& a, const json& n) { return f(a[0], n.at("dim").get<int>()); };
}
inline Step over(Tensor (*f)(const Tensor&, Dims, bool)) {
  return [f](const Args& a, const json& n) {
    auto dims = n.at("dims").get<std::vector<int>>();
    return f(a[0], std::span<const int>(dims), n.at("keepdim"));
  };
}

inline Steps curves() {
  return {
      {"neg", one(neg)},
      {"exp", one(exp)},
      {"log", one(log)},
      {"sqrt", one(sqrt)},
      {"tanh", one(tanh)},
      {"sigmoid", one(sigmoid)},
      {"relu", one(relu)},
      {"abs", one(abs)},
      {"silu", one(silu)},
      {"gelu", one([](const Tensor& x) { return gelu(x); })},
      {"gelu_tanh", one([](const Tensor& x) { return gelu(x, true); })},
      {"sin", one(sin)},
      {"cos", one(cos)},
      {"rsqrt", one(rsqrt)},
      {"reciprocal", one(reciprocal)},
      {"square", one(square)},
      {"log1p", one(log1p)},
      {"expm1", one(expm1)},
      {"erf", one(erf)},
      {"softplus", one(softplus)},
      {"elu", one([](const Tensor& x) { return elu(x); })},
      {"leaky_relu", one([](const Tensor& x) { return leaky_relu(x); })},
      {"huber", one([](const Tensor& x) { return huber(x, 0.75); })},
      {"floor", one(floor)},
      {"ceil", one(ceil)},
      {"trunc", one(trunc)},
      {"round", one(round)},
      {"sign", one(sign)},
      {"clone", one(clone)},
      {"cast", one([](const Tensor& x) { return cast(cast(x, DType::f32), x.dtype()); })},
      {"isnan", one([](const Tensor& x) -> Tensor { return isnan(log(x)); })},
      {"isinf", one([](const Tensor& x) -> Tensor { return isinf(1 / trunc(x)); })},
      {"isfinite", one([](const Tensor& x) -> Tensor { return isfinite(log(trunc(x))); })},
      {"logical_not", one([](const Tensor& x) -> Tensor { return logical_not(round(x)); })},
  };
}

inline Steps reductions() {
  return {
      {"sum", one(sum)},
      {"mean", one(mean)},
      {"max", one(max)},
      {"min", one(min)},
      {"norm", one(norm)},
      {"prod", one(prod)},
      {"var", one([](const Tensor& x) { return var(x); })},
      {"std", one([](const Tensor& x) { return std(x); })},
      {"max_of_ties", one([](const Tensor& x) {
         return max(stack({x.detach(), x}));
       })},
      {"min_of_ties", one([](const Tensor& x) {
         return min(stack({x.detach(), abs(x), x}));
       })},
      {"amax_of_ties", one([](const Tensor& x) {
         return amax(stack({x.detach(), x, x - 1}), 0);
       })},
      {"where_largest", one([](const Tensor& x) {
         Tensor flat = reshape(x, {x.numel()});
         return flat[argmax(x)] - flat[argmin(x)];
       })},
      {"any", one([](const Tensor& x) -> Tensor { return any(x > 1); })},
      {"all", one([](const Tensor& x) -> Tensor { return all(x > -1); })},
      {"count_nonzero", one([](const Tensor& x) { return count_nonzero(x > 0); })},
      {"nonzero", one([](const Tensor& x) { return nonzero(x > 0); })},
      {"sum_dims", over(sum)},
      {"mean_dims", over(mean)},
      {"amax", over(amax)},
      {"amin", over(amin)},
      {"norm_dims", over(norm)},
      {"logsumexp_dims", over(logsumexp)},
      {"var_dims", over([](const Tensor& x, Dims d, bool k) { return var(x, d, 1, k); })},
      {"std_dims", over([](const Tensor& x, Dims d, bool k) { return std(x, d, 0, k); })},
      {"any_dims", over([](const Tensor& x, Dims d, bool k) -> Tensor { return any(x > 1, d, k); })},
      {"all_dims", over([](const Tensor& x, Dims d, bool k) -> Tensor { return all(x > -1, d, k); })},
  };
}

inline Steps arrangements() {
  return {
      {"tril", one([](const Tensor& x) { return tril(x); })},
      {"triu", one([](const Tensor& x) { return triu(x); })},
      {"squeeze", one(squeeze)},
      {"flatten", one([](const Tensor& x) { return flatten(x); })},
      {"t", one(t)},
      {"unsqueeze", along(unsqueeze)},
      {"flip", along([](const Tensor& x, int d) { return flip(x, {d}); })},
      {"roll", along([](const Tensor& x, int d) { return roll(x, 1, d); })},
      {"select", along([](const Tensor& x, int d) { return select(x, d, -1); })},
      {"transpose", along([](const Tensor& x, int d) { return transpose(x, 0, d); })},
      {"stack_self", along([](const Tensor& x, int d) {
         return stack({x, 2 * x}, d);
       })},
      {"cat_self", along([](const Tensor& x, int d) {
         return cat({x, -x}, d);
       })},
      {"chunk", along([](const Tensor& x, int d) { return chunk(x, 2, d)[0]; })},
      {"split", along([](const Tensor& x, int d) {
         const int64_t sizes[] = {1, x.size(d) - 1};
         return split(x, sizes, d)[1];
       })},
      {"steps", along([](const Tensor& x, int d) { return slice(x, d, 0, x.size(d), 2); })},
      {"index_select", along([](const Tensor& x, int d) {
         return index_select(x, d, tensor({x.size(d) - 1, int64_t(0), int64_t(0)}));
       })},
  };
}

inline Steps along_dimensions() {
  return {
      {"sum_dim", along([](const Tensor& x, int d) { return x.sum(d); })},
      {"mean_dim", along([](const Tensor& x, int d) { return x.mean(d); })},
      {"var_dim", along([](const Tensor& x, int d) { return var(x, d); })},
      {"std_dim", along([](const Tensor& x, int d) { return std(x, d); })},
      {"prod_dim", along([](const Tensor& x, int d) { return prod(x, d); })},
      {"norm_dim", along([](const Tensor& x, int d) { return norm(x, d); })},
      {"logsumexp", along([](const Tensor& x, int d) { return logsumexp(x, d); })},
      {"cumsum", along(cumsum)},
      {"softmax", along(softmax)},
      {"log_softmax", along(log_softmax)},
      {"max_dim", along([](const Tensor& x, int d) { return max(x, d).values; })},
      {"min_dim", along([](const Tensor& x, int d) { return min(x, d).values; })},
      {"sort", along([](const Tensor& x, int d) { return sort(x, d).values; })},
      {"sort_down", along([](const Tensor& x, int d) { return sort(x, d, true).values; })},
      {"top2", along([](const Tensor& x, int d) { return topk(x, 2, d).values; })},
      {"order", along([](const Tensor& x, int d) { return gather(x, d, argsort(x, d)); })},
      {"at_largest", along([](const Tensor& x, int d) { return gather(x, d, argmax(x, d, true)); })},
      {"at_smallest", along([](const Tensor& x, int d) { return gather(x, d, argmin(x, d, true)); })},
      {"share_above", along([](const Tensor& x, int d) { return mean((x > mean(x, d, true)).to(x.dtype()), d); })},
      {"rare",
       along([](const Tensor& x, int d) { return any(x > 1, d).to(x.dtype()) + 2 * all(x > -1, d).to(x.dtype()); })},
  };
}

}  // namespace shardgrad::test::programs
