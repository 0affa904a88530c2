// Elements that are counted, put in order and picked.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>

#include <shardgrad/python/functions.h>
#include <shardgrad/python/results.h>

namespace shardgrad::python {

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Operand& src) {
  Tensor given = beside("scatter", x, src), counts = zeros(x.shape(), {DType::i32, x.device()});
  Tensor times = scatter_add(counts, dim, index, ones(index.shape(), {DType::i32, x.device()}));
  if (given.ndim() == 0) return where(ne(times, counts), given, x);
  bool twice = x.device() != kMeta && x.numel() > 0 && max(times).item() > 1;
  SG_CHECK(!twice, "scatter: an element of ", x, " is named twice, and would get one value or the other; name each ",
           "once, or add them up with scatter_add");
  return where(ne(times, counts), scatter_add(zeros_like(x.detach()), dim, index, given), x);
}

namespace {

Tensor bincount(const Tensor& x, const std::optional<Tensor>& weights, int64_t minlength) {
  SG_CHECK(x.ndim() == 1 && !is_floating(x.dtype()), "bincount: ", x, " is no row of integers");
  SG_CHECK(minlength >= 0, "bincount: minlength ", minlength, " is negative");
  Tensor places = x.to(DType::i64);
  int64_t length = minlength;
  if (x.numel() > 0) {
    SG_CHECK(min(places).item() >= 0, "bincount: ", x, " has numbers below 0");
    length = std::max(length, int64_t(max(places).item()) + 1);
  }
  Tensor each = weights ? *weights : ones(x.shape(), {DType::i64, x.device()});
  return scatter_add(zeros({length}, {each.dtype(), x.device()}), 0, places, each);
}

Tensor unique(const Tensor& x, bool) {
  NoGrad no_grad;
  Tensor all = sort(flatten(x.detach()), 0).values;
  int64_t count = all.numel();
  if (count < 2) return all;
  Tensor begins = ne(slice(all, 0, 1, count), slice(all, 0, 0, count - 1));
  return masked_select(all, cat({ones({1}, {DType::u8, x.device()}), begins}, 0));
}

// The lower one of two in the middle; NaN where there is one, which is the last in order.
ValuesAndIndex median_along(const Tensor& x, int dim, bool keepdim) {
  dim = check_dim("median", x, dim);
  int64_t count = x.size(dim);
  SG_CHECK(count > 0, "median: dimension ", dim, " of ", x, " has no elements");
  ValuesAndIndex ordered = sort(x, dim);
  auto at = [&](const Tensor& y, int64_t place) { return slice(y, dim, place, place + 1); };
  int64_t middle = (count - 1) / 2, last = count - 1;
  Tensor odd = isnan(at(ordered.values, last));
  auto picked = [&](const Tensor& y) {
    Tensor one = where(odd, at(y, last), at(y, middle));
    return keepdim ? one : squeeze(one, dim);
  };
  return {picked(ordered.values), picked(ordered.index)};
}

nb::object median(const Tensor& x, std::optional<int> dim, bool keepdim) {
  std::optional<ValuesAndIndex> found;
  {
    Wait wait;
    found = median_along(dim ? x : flatten(x), dim.value_or(0), keepdim);
  }
  return dim ? named(*found) : nb::cast(found->values);
}

using Rows = nb::typed<nb::tuple, Tensor, nb::ellipsis>;
Rows places_where(const Tensor& condition) {
  std::vector<Tensor> places;
  {
    Wait wait;
    Tensor all = nonzero(condition);
    for (int d = 0; d < condition.ndim(); ++d) places.push_back(select(all, 1, d));
  }
  return Rows(nb::tuple(nb::cast(places)));
}

}  // namespace

void bind_selections(nb::module_& m, TensorClass& tensor) {
  def_both(m, tensor, "bincount", bincount, "weights"_a = nb::none(), "minlength"_a = 0,
           "How often each number from 0 on is in a row of integers, or the sums of their weights.");
  def_both(m, tensor, "unique", unique, "sorted"_a = true, "The different elements in order.");
  const char* median_is = "The element in the middle, the lower one of two; with a dim, values and indices along it.";
  m.def("median", median, "x"_a, "dim"_a = nb::none(), "keepdim"_a = false, median_is);
  tensor.def("median", median, "dim"_a = nb::none(), "keepdim"_a = false, median_is);
  def_both(m, tensor, "scatter", scatter, "dim"_a, "index"_a, "src"_a,
           "A copy of x with src, a tensor or a number, at index along dim. Differentiable in both.");
  m.def("where", places_where, "condition"_a, "The positions that are not 0: of each dimension a row of numbers.");
}

}  // namespace shardgrad::python
