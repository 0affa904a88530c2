// Reductions, running sums and orders.

#include <cmath>

#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/results.h>
#include <shardgrad/python/rounded.h>

namespace shardgrad::python {

nb::object named(const ValuesAndIndex& found) {
  nb::object type = nb::module_::import_("shardgrad._results").attr("ValuesAndIndices");
  return type(found.values, found.index);
}

namespace {

using OneOrMore = std::variant<int, std::vector<int>>;
using Places = std::span<const int>;

Places places(const OneOrMore& dim) {
  if (auto* one = std::get_if<int>(&dim)) return Places(one, 1);
  return std::get<std::vector<int>>(dim);
}

// max(x) is a tensor; max(x, dim) a pair of values and indices, as a named tuple.
using Extreme = std::variant<Tensor, nb::object>;

Tensor without_dims(const Tensor& y) { return reshape(y, {}); }
ValuesAndIndex without_dims(const ValuesAndIndex& y) { return {reshape(y.values, {}), reshape(y.index, {})}; }
// A tensor without dimensions may be told dimension 0, or -1, as in PyTorch: as if it had one.
template <class Of> auto of_dims(const Tensor& x, const Of& of) {
  return x.ndim() > 0 ? of(x) : without_dims(of(reshape(x, {1})));
}

// sum(x), sum(x, 1), sum(x, (0, -1)).
template <class All, class Some>
void def_over(nb::module_& m, TensorClass& tensor, const char* name, All all, Some some, const char* doc) {
  def_both(
      m, tensor, name,
      [all, some](const Tensor& x, const std::optional<OneOrMore>& dim, bool keepdim) -> Tensor {
        if (!dim) return all(x);
        return of_dims(x, [&](const Tensor& y) -> Tensor { return some(y, places(*dim), keepdim); });
      },
      "dim"_a = nb::none(), "keepdim"_a = false, doc);
}

// Of one dimension, or of all.
template <class All, class Along>
void def_along(nb::module_& m, TensorClass& tensor, const char* name, All all, Along along, const char* doc) {
  def_both(
      m, tensor, name,
      [all, along](const Tensor& x, std::optional<int> dim, bool keepdim) -> Tensor {
        return dim ? of_dims(x, [&](const Tensor& y) { return along(y, *dim, keepdim); }) : all(x);
      },
      "dim"_a = nb::none(), "keepdim"_a = false, doc);
}

template <class Both, class All, class Along>
void def_extreme(nb::module_& m, TensorClass& tensor, const char* name, Both both, All all, Along along,
                 const char* doc) {
  auto of = [=](const Tensor& x, const std::optional<std::variant<Tensor, int>>& dim, bool keepdim) -> Extreme {
    if (dim && std::holds_alternative<int>(*dim)) {
      std::optional<ValuesAndIndex> found;
      {
        Wait wait;
        found = of_dims(x, [&](const Tensor& y) { return along(y, std::get<int>(*dim), keepdim); });
      }
      return named(*found);
    }
    Wait wait;
    return dim ? both(x, std::get<Tensor>(*dim)) : all(x);
  };
  m.def(name, of, "x"_a, "dim"_a = nb::none(), "keepdim"_a = false, doc);
  tensor.def(name, of, "dim"_a = nb::none(), "keepdim"_a = false, doc);
}

template <class Of, class... Extra>
void def_pair(nb::module_& m, TensorClass& tensor, const char* name, Of of, const Extra&... extra) {
  m.def(name, of, "x"_a, extra...);
  tensor.def(name, of, extra...);
}

// Below 1 its slope at 0 is infinite; a norm's gradient there is 0.
Tensor power_of_size(const Tensor& size, double p) {
  if (p >= 1) return pow(size, p);
  Tensor none = size == 0;
  return where(none, zeros_like(size), pow(where(none, ones_like(size), size), p));
}

Tensor norm_of(const Tensor& x, double p, const OneOrMore* dim, bool keepdim) {
  if (p == 2) return dim ? norm(x, places(*dim), keepdim) : norm(x);
  Tensor size = abs(x);
  if (std::isinf(p)) return dim ? amax(size, places(*dim), keepdim) : max(size);
  auto total = [&](const Tensor& y) { return dim ? sum(y, places(*dim), keepdim) : sum(y); };
  if (p == 1) return total(size);
  Tensor sums = total(power_of_size(size, p));
  return power_of_size(sums, 1 / p);
}

void bind_norm(nb::module_& m, TensorClass& tensor) {
  def_both(
      m, tensor, "norm",
      [](const Tensor& x, double p, const std::optional<OneOrMore>& dim, bool keepdim) {
        SG_CHECK(p > 0, "norm: p = ", p, " is not possible; it is above 0, or inf");
        auto of = [&](const Tensor& y) { return norm_of(y, p, dim ? &*dim : nullptr, keepdim); };
        return rounded_once(x, [&](const Tensor& y) { return dim ? of_dims(y, of) : of(y); });
      },
      "p"_a = 2., "dim"_a = nb::none(), "keepdim"_a = false,
      "The p-norm of all elements or along dim, one or several; p may be inf.");
}

void bind_sums(nb::module_& m, TensorClass& tensor) {
  def_over(
      m, tensor, "sum", [](const Tensor& x) { return sum(x); },
      [](const Tensor& x, Places d, bool k) { return sum(x, d, k); }, "Sums of integers are int64.");
  def_over(
      m, tensor, "mean", [](const Tensor& x) { return mean(x); },
      [](const Tensor& x, Places d, bool k) { return mean(x, d, k); }, "Of floating dtypes.");
  def_along(
      m, tensor, "prod", [](const Tensor& x) { return prod(x); },
      [](const Tensor& x, int d, bool k) { return prod(x, d, k); }, "The product.");
}

void bind_spreads(nb::module_& m, TensorClass& tensor) {
  auto spread = [&](const char* name, auto of, const char* doc) {
    def_both(
        m, tensor, name,
        [of](const Tensor& x, const std::optional<std::variant<bool, OneOrMore>>& dim, double correction, bool keepdim,
             std::optional<bool> unbiased) {
          if (dim && std::holds_alternative<bool>(*dim))
            unbiased = std::get<bool>(*dim);  // x.std(False), as in PyTorch
          auto* along = dim ? std::get_if<OneOrMore>(&*dim) : nullptr;
          auto apply = [&](const Tensor& y) {
            return of(y, along, unbiased ? double(*unbiased) : correction, keepdim);
          };
          return along ? of_dims(x, apply) : apply(x);
        },
        "dim"_a = nb::none(), nb::kw_only(), "correction"_a = 1., "keepdim"_a = false, "unbiased"_a = nb::none(), doc);
  };
  spread(
      "var",
      [](const Tensor& x, const OneOrMore* dim, double correction, bool keepdim) {
        return dim ? var(x, places(*dim), correction, keepdim) : var(x, correction);
      },
      "Σ (x - mean)² / (n - correction)");
  spread(
      "std",
      [](const Tensor& x, const OneOrMore* dim, double correction, bool keepdim) {
        return dim ? shardgrad::std(x, places(*dim), correction, keepdim) : shardgrad::std(x, correction);
      },
      "√var");
}

void bind_others(nb::module_& m, TensorClass& tensor) {
  def_both(
      m, tensor, "logsumexp",
      [](const Tensor& x, const OneOrMore& dim, bool keepdim) {
        return of_dims(x, [&](const Tensor& y) { return logsumexp(y, places(dim), keepdim); });
      },
      "dim"_a, "keepdim"_a = false, "log Σ exp(x) without overflow.");
  auto along = [&](const char* name, Tensor (*of)(const Tensor&, int), auto dim, const char* doc) {
    def_both(
        m, tensor, name,
        [of](const Tensor& x, int place) { return of_dims(x, [&](const Tensor& y) { return of(y, place); }); }, dim,
        doc);
  };
  along("cumsum", cumsum, "dim"_a, "Running sums along dim.");
  along("softmax", softmax, "dim"_a = -1, "exp(x) / Σ exp(x) along dim.");
  along("log_softmax", log_softmax, "dim"_a = -1, "The logarithm of softmax.");
}

void bind_extremes(nb::module_& m, TensorClass& tensor) {
  def_extreme(
      m, tensor, "max", maximum, [](const Tensor& x) { return max(x); },
      [](const Tensor& x, int d, bool k) { return max(x, d, k); },
      "The largest element; with a dim, values and indices along it; with a tensor, maximum.");
  def_extreme(
      m, tensor, "min", minimum, [](const Tensor& x) { return min(x); },
      [](const Tensor& x, int d, bool k) { return min(x, d, k); },
      "The smallest element; with a dim, values and indices along it; with a tensor, minimum.");
  def_along(
      m, tensor, "argmax", [](const Tensor& x) { return argmax(x); },
      [](const Tensor& x, int d, bool k) { return argmax(x, d, k); }, "Where the (first) largest element is.");
  def_along(
      m, tensor, "argmin", [](const Tensor& x) { return argmin(x); },
      [](const Tensor& x, int d, bool k) { return argmin(x, d, k); }, "Where the (first) smallest element is.");
  def_over(
      m, tensor, "amax", [](const Tensor& x) { return max(x); },
      [](const Tensor& x, Places d, bool k) { return amax(x, d, k); },
      "The largest element over dims; equal ones have equal parts of the gradient.");
  def_over(
      m, tensor, "amin", [](const Tensor& x) { return min(x); },
      [](const Tensor& x, Places d, bool k) { return amin(x, d, k); },
      "The smallest element over dims; equal ones have equal parts of the gradient.");
  def_over(
      m, tensor, "any", [](const Tensor& x) { return any(x); },
      [](const Tensor& x, Places d, bool k) { return any(x, d, k); }, "Whether some element is not 0 (uint8).");
  def_over(
      m, tensor, "all", [](const Tensor& x) { return all(x); },
      [](const Tensor& x, Places d, bool k) { return all(x, d, k); }, "Whether each element is not 0 (uint8).");
  def_both(m, tensor, "count_nonzero", count_nonzero, "How many elements are not 0.");
}

template <class Of> nb::object found(const Tensor& x, Of of) {
  std::optional<ValuesAndIndex> result;
  {
    Wait wait;
    result = of_dims(x, of);
  }
  return named(*result);
}

void bind_orders(nb::module_& m, TensorClass& tensor) {
  def_pair(
      m, tensor, "sort",
      [](const Tensor& x, int dim, bool descending) {
        return found(x, [&](const Tensor& y) { return sort(y, dim, descending); });
      },
      "dim"_a = -1, "descending"_a = false, "The elements along dim in order, and where they were.");
  def_pair(
      m, tensor, "topk",
      [](const Tensor& x, int64_t k, int dim, bool largest) {
        return found(x, [&](const Tensor& y) { return topk(y, k, dim, largest); });
      },
      "k"_a, "dim"_a = -1, "largest"_a = true, "The k largest along dim, the largest first, and where they were.");
  def_both(
      m, tensor, "argsort",
      [](const Tensor& x, int dim, bool descending) {
        return of_dims(x, [&](const Tensor& y) { return argsort(y, dim, descending); });
      },
      "dim"_a = -1, "descending"_a = false, "Where the elements in order are.");
}

}  // namespace

void bind_reductions(nb::module_& m, TensorClass& tensor) {
  bind_sums(m, tensor);
  bind_spreads(m, tensor);
  bind_norm(m, tensor);
  bind_others(m, tensor);
  bind_extremes(m, tensor);
  bind_orders(m, tensor);
}

}  // namespace shardgrad::python
