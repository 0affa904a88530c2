// Cases of running sums, orders, and what is made of reductions, moves and products (autograd/ops/reductions.h,
// layout.h).

#include <shardgrad/certify/registry_cases.h>

namespace shardgrad {
namespace {

using Function = Tensor (*)(const Tensor& x, int dim);

// One dimension of few elements, and of many.
void add_along(std::vector<OpCase>& cases, const char* op, Function call, InputSpec::Kind kind, Numbers n = {}) {
  for (int dim : {0, 1, -1})
    add_case(cases, op, concat("dim ", dim), [=](Inputs in) { return call(in[0], dim); },
             {{{4, 3, 5}, n.low, n.high, kind}});
  for (const Shape& shape : {Shape{33, 31}, Shape{3, 1025}})
    for (int dim : {0, 1})
      add_size_case(
          cases, op, [=](Inputs in) { return call(in[0], dim); }, {{shape, n.low, n.high, kind}},
          concat("dim ", dim, " of "));
}

constexpr auto kGrad = InputSpec::Kind::differentiable, kFixed = InputSpec::Kind::constant;

template <class Call>
void add_pair_cases(std::vector<OpCase>& cases, const char* op, Call call, const Shape& small, const Shape& large,
                    const std::string& note = "") {
  add_case(cases, op, note + concat(small), call, {{small}});
  add_size_case(cases, op, call, {{large}}, note);
}

void add_orders(std::vector<OpCase>& cases) {
  add_along(cases, "cumsum", cumsum, kGrad);
  for (const Shape& shape : {Shape{7}, Shape{1}, Shape{0, 3}, Shape{3, 0}})
    add_case(cases, "sort", concat(shape), [](Inputs in) { return sort(in[0], 0).values; }, {{shape}});
  for (bool descending : {false, true})
    for (int dim : {0, 1, -1}) {
      auto both = [=](Inputs in) {
        ValuesAndIndex result = sort(in[0] + in[1] / 256, dim, descending);  // of which hardly two are equal
        return std::vector<Tensor>{result.values, result.index};
      };
      cases.push_back(
          {"sort", concat("dim ", dim, descending ? ", descending" : ""), both, {{{4, 3, 5}}, {{4, 3, 5}}}});
      cases.back().made_of_others = true;
    }
  for (const Shape& shape : {Shape{33, 31}, Shape{3, 1025}, Shape{2, 2500}})
    add_size_case(cases, "sort", [](Inputs in) { return sort(in[0]).values; }, {{shape}});
  add_size_case(
      cases, "sort", [](Inputs in) { return sort(in[0], 0, true).values; }, {{{1025, 3}}}, "descending, dim 0 of ");
}

void add_leasts(std::vector<OpCase>& cases) {
  add_along(
      cases, "min", [](const Tensor& x, int dim) { return min(x, dim).values; }, kGrad);
  add_along(
      cases, "argmin", [](const Tensor& x, int dim) { return argmin(x, dim); }, kFixed);
  for (auto [op, call] : {std::pair<const char*, Tensor (*)(const Tensor&)>{"min", min}, {"max", max}})
    add_pair_cases(
        cases, op, [call = call](Inputs in) { return call(in[0]); }, {4, 3}, {33, 32}, "all of ");
  for (auto [op, call] : {std::pair<const char*, Tensor (*)(const Tensor&, Dims, bool)>{"amin", amin}, {"amax", amax}})
    for (bool keepdim : {false, true})
      add_pair_cases(
          cases, op,
          [=, call = call](Inputs in) {
            return call(in[0], {-1, 0}, keepdim);
          },
          {4, 3, 5}, {33, 3, 31}, keepdim ? "two dims, kept, of " : "two dims of ");
  // Of two that are equal one has a gradient, half of it: as central differences have it, which move only this one.
  auto of_ties = [](Inputs in) { return amax(stack({in[0], in[1], in[2]}, 1), {0, 1}); };
  add_case(cases, "amax", "ties", of_ties, {{{1, 3}, 1, 1}, constant({1, 3}, 1, 1), {{1, 3}, -3, -2}});
  cases.back().made_of_others = true;
}

void add_softmax_of_columns(std::vector<OpCase>& cases) {
  for (int dim : {0, 1}) {
    add_pair_cases(
        cases, "softmax", [dim](Inputs in) { return softmax(in[0], dim); }, {4, 3, 2}, {3, 33, 70},
        concat("dim ", dim, " of "));
    add_pair_cases(
        cases, "log_softmax", [dim](Inputs in) { return log_softmax(in[0], dim); }, {4, 3, 2}, {3, 33, 70},
        concat("dim ", dim, " of "));
  }
}

void add_prods(std::vector<OpCase>& cases) {
  add_along(cases, "prod", [](const Tensor& x, int dim) { return prod(x, dim); }, kGrad, {0.75, 1.25});
  add_size_case(
      cases, "prod", [](Inputs in) { return prod(in[0]); }, {{{4099}, 0.999, 1.001}}, "in chunks ");
  auto with_zeros = [](Inputs in) { return prod(masked_fill(in[0], in[1], 0), 1); };
  add_case(cases, "prod", "of zeros", with_zeros, {{{6, 5}}, flags({6, 5})});
  cases.back().made_of_others = true;
}

void add_turned(std::vector<OpCase>& cases) {
  for (const Shape& shape : {Shape{4, 3, 5}, Shape{0, 3, 2}})
    for (std::vector<int> dims : {std::vector<int>{0}, {1}, {-1}, {0, 2}, {0, 1, 2}}) {
      std::string label = concat(dims.size(), " dims, first ", dims[0], ", of ", shape);
      add_case(cases, "flip", label, [dims](Inputs in) { return flip(in[0], dims); }, {{shape}});
    }
  for (int64_t diagonal : {-1, 0, 2})
    for (const Shape& shape : {Shape{4, 3}, Shape{2, 3, 5}}) {
      std::string label = concat("diagonal ", diagonal, " of ", shape);
      add_case(cases, "tril", label, [=](Inputs in) { return tril(in[0], diagonal); }, {{shape}});
      add_case(cases, "triu", label, [=](Inputs in) { return triu(in[0], diagonal); }, {{shape}});
    }
  for (const Shape& shape : {Shape{33, 31}, Shape{3, 1025}}) {
    add_size_case(
        cases, "flip", [](Inputs in) { return flip(in[0], {0}); }, {{shape}}, "dim 0 of ");
    add_size_case(
        cases, "flip", [](Inputs in) { return flip(in[0], {1}); }, {{shape}}, "dim 1 of ");
    add_size_case(cases, "tril", [](Inputs in) { return tril(in[0], 1); }, {{shape}});
    add_size_case(cases, "triu", [](Inputs in) { return triu(in[0], -1); }, {{shape}});
  }
}

void add_of_orders(std::vector<OpCase>& cases) {
  add_along(
      cases, "argsort", [](const Tensor& x, int dim) { return argsort(x, dim, true); }, kFixed);
  for (int dim : {0, 1, -1})
    add_case(cases, "topk", concat("dim ", dim), [=](Inputs in) { return topk(in[0], 2, dim).values; }, {{{4, 3, 5}}});
  add_case(cases, "topk", "smallest", [](Inputs in) { return topk(in[0], 3, 0, false).values; }, {{{7}}});
  add_size_case(cases, "topk", [](Inputs in) { return topk(in[0], 5).values; }, {{{33, 63}}});
  add_size_case(
      cases, "topk", [](Inputs in) { return topk(in[0], 32).values; }, {{{2, 8200}}}, "few of ");
}

void add_statistics(std::vector<OpCase>& cases) {
  add_along(
      cases, "var", [](const Tensor& x, int dim) { return var(x, dim); }, kGrad);
  add_along(
      cases, "std", [](const Tensor& x, int dim) { return std(x, dim, 0, true); }, kGrad);
  add_along(
      cases, "logsumexp", [](const Tensor& x, int dim) { return logsumexp(x, dim); }, kGrad);
  add_along(cases, "any", [](const Tensor& x, int dim) { return Tensor(any(x, dim)); }, kFixed, {-0.5, 0.5});
  add_along(
      cases, "all", [](const Tensor& x, int dim) { return Tensor(all(x, dim)); }, kFixed);
}

void add_of_all(std::vector<OpCase>& cases) {
  auto of_all = [&](const char* op, Tensor (*call)(const Tensor&)) {
    add_pair_cases(
        cases, op, [call](Inputs in) { return call(in[0]); }, {4, 3}, {33, 32}, "all of ");
  };
  of_all("var", [](const Tensor& x) { return var(x); });
  of_all("std", [](const Tensor& x) { return std(x); });
  auto counts = [](Inputs in) { return count_nonzero(in[0]); };
  add_case(cases, "count_nonzero", "", counts, {constant({4, 3})});
  add_size_case(cases, "count_nonzero", counts, {constant({1025})});
  add_pair_cases(
      cases, "sum",
      [](Inputs in) {
        return sum(in[0], {0, -1});
      },
      {4, 3, 5}, {33, 3, 31}, "two dims of ");
  add_pair_cases(
      cases, "mean",
      [](Inputs in) {
        return mean(in[0], {1, 0}, true);
      },
      {4, 3, 5}, {33, 3, 31}, "two dims of ");
}

void add_views(std::vector<OpCase>& cases) {
  Shape small{4, 3, 5}, large{33, 3, 31};
  auto add = [&](const char* op, auto call) {
    add_pair_cases(
        cases, op, [call](Inputs in) { return call(in[0]); }, small, large);
  };
  add("unsqueeze", [](const Tensor& x) { return unsqueeze(x, -1); });
  add("squeeze", [](const Tensor& x) { return squeeze(unsqueeze(x, 1), 1); });
  add("flatten", [](const Tensor& x) { return flatten(x, 1); });
  add("chunk", [](const Tensor& x) { return chunk(x, 2, 2)[1]; });
  add("select", [](const Tensor& x) { return select(x, 1, -1); });
  add("slice", [](const Tensor& x) { return slice(x, 2, -5, -1, 2); });
  add("roll", [](const Tensor& x) { return roll(x, 2, 2); });
  add("repeat", [](const Tensor& x) { return repeat(x, {2, 1, 3, 1}); });
  add("index", [](const Tensor& x) { return x[{Slice(1), None, 0, Slice({}, {}, 2)}]; });
  add_pair_cases(cases, "t", [](Inputs in) { return t(in[0]); }, {4, 3}, {33, 35});
  auto put = [](Inputs in) { return index_put(in[0], {Slice(1, 3), 0}, in[1]); };
  add_case(cases, "index_put", "", put, {{small}, {{2, 5}}});
  add_size_case(cases, "index_put", put, {{large}, {{31}}});
  auto pick = [](Inputs in) { return index(in[0], {in[1], in[2]}); };
  add_case(cases, "index", "two tensors", pick, {{small}, index_below(4, {6}), index_below(3, {6})});
  auto pile = [](Inputs in) { return stack(in, 1); };
  add_case(cases, "stack", "", pile, {{small}, {small}});
  add_size_case(cases, "stack", pile, {{large}, {large}});
}

void add_vector_products(std::vector<OpCase>& cases) {
  auto multiply = [](Inputs in) { return matmul(in[0], in[1]); };
  for (auto [a, b] : {std::pair<Shape, Shape>{{5}, {5}}, {{3, 5}, {5}}, {{5}, {5, 3}}, {{2, 3, 5}, {5}}})
    add_case(cases, "matmul", concat("of vectors ", a, b), multiply, {{a}, {b}});
  add_case(cases, "matmul", "broadcast batch", multiply, {{{2, 1, 3, 5}}, {{4, 5, 2}}});
  auto sums = [](const char* equation) { return [=](Inputs in) { return einsum(equation, in); }; };
  add_case(cases, "einsum", "", sums("bqhd,bkhd->bhqk"), {{{2, 3, 2, 4}}, {{2, 5, 2, 4}}});
  add_case(cases, "einsum", "diagonal", sums("...ii,i->..."), {{{2, 3, 3}}, {{3}}});
  add_size_case(cases, "einsum", sums("bij,bkj->bki"), {{{2, 33, 35}}, {{2, 31, 35}}});
  auto each = [](Inputs in) { return outer(in[0], in[1]); };
  add_case(cases, "outer", "", each, {{{4}}, {{3}}});
  add_size_case(cases, "outer", each, {{{33}}, {{35}}});
}

// The input gives shape, dtype and device.
void add_more_creations(std::vector<OpCase>& cases) {
  auto add = [&](const char* op, auto call) {
    add_case(cases, op, "", [call](Inputs in) { return call(in[0]); }, {constant({3, 5})});
    add_size_case(cases, op, [call](Inputs in) { return call(in[0]); }, {constant({33, 32})});
  };
  auto like = [](const Tensor& x) { return TensorOptions(x.dtype(), x.device()); };
  add("zeros_like", zeros_like);
  add("ones_like", ones_like);
  add("full_like", [](const Tensor& x) { return full_like(x, -1.5); });
  add("linspace", [like](const Tensor& x) { return linspace(-1, 1, x.numel(), like(x)); });
  add("eye", [like](const Tensor& x) { return eye(x.size(0), x.size(1), like(x)); });
  auto drawn = [&](const char* op, auto call) {
    add(op, [call](const Tensor& x) { return first_of([&] { return call(x); }); });
  };
  drawn("randint", [](const Tensor& x) { return randint(-3, 9, x.shape(), "case", {DType::i64, x.device()}); });
  drawn("randn_like", [](const Tensor& x) { return randn_like(x, "case"); });
  drawn("rand_like", [](const Tensor& x) { return rand_like(x, "case"); });
  drawn("randperm", [](const Tensor& x) { return randperm(x.numel(), "case", x.device()); });
}

}  // namespace

void add_order_cases(std::vector<OpCase>& cases) {
  add_orders(cases);
  add_leasts(cases);
  add_softmax_of_columns(cases);
  add_prods(cases);
  add_turned(cases);
  size_t first = cases.size();
  add_of_orders(cases);
  add_statistics(cases);
  add_of_all(cases);
  add_views(cases);
  add_vector_products(cases);
  add_more_creations(cases);
  for (size_t i = first; i < cases.size(); ++i) cases[i].made_of_others = true;
}

}  // namespace shardgrad
