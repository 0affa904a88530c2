// x[…] and its relatives.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

std::optional<int64_t> end_of(nb::handle end) {
  if (end.is_none()) return std::nullopt;
  int64_t number = 0;
  SG_CHECK(nb::try_cast<int64_t>(end, number), "index: '", nb::repr(end).c_str(), "' is no end of a slice");
  return number;
}

Index index_of(nb::handle given) {
  int64_t number = 0;
  Tensor tensor;
  if (given.is_none()) return None;
  if (given.ptr() == Py_Ellipsis) return Ellipsis;
  if (nb::isinstance<nb::slice>(given))
    return Slice(end_of(given.attr("start")), end_of(given.attr("stop")), end_of(given.attr("step")).value_or(1));
  if (nb::try_cast(given, tensor)) return tensor;
  if (!nb::isinstance<nb::bool_>(given) && nb::try_cast(given, number)) return number;
  if (nb::isinstance<nb::list>(given) || nb::hasattr(given, "__array_interface__"))
    return nb::cast<Tensor>(nb::module_::import_("shardgrad").attr("tensor")(given));
  fail("index: '", nb::repr(given).c_str(), "' is no index; it is an integer, a slice, None, ... or a tensor");
}

std::vector<Index> indices_of(nb::handle given) {
  std::vector<Index> indices;
  if (nb::isinstance<nb::tuple>(given))
    for (nb::handle each : given) indices.push_back(index_of(each));
  else
    indices.push_back(index_of(given));
  return indices;
}

Tensor get(const Tensor& x, nb::handle given) {
  std::vector<Index> indices = indices_of(given);
  Wait wait;
  return index(x, std::span<const Index>(indices));
}

// In place, as in PyTorch; refused where the change would have no gradient.
void set(const Tensor& x, nb::handle given, nb::handle value) {
  std::vector<Index> indices = indices_of(given);
  Operand values;
  if (!nb::try_cast(value, values))  // lists and arrays
    values = nb::cast<Tensor>(nb::module_::import_("shardgrad").attr("tensor")(value, "dtype"_a = x.dtype()));
  Wait wait;
  check_changeable("index assignment", x);
  auto* given_tensor = std::get_if<Tensor>(&values);
  Tensor written = given_tensor ? *given_tensor : number_beside("index assignment", x, scalar_of(number_in(values)));
  SG_CHECK(!grad_enabled() || !written.requires_grad(), "index assignment: the value's gradient would be lost; write ",
           "x = index_put(x, indices, value), which is differentiable in both");
  NoGrad no_grad;
  Tensor put = index_put(x.detach(), std::span<const Index>(indices), written.detach());
  copy_into(x, cast(put, x.dtype()));  // that autocast has widened
}

nb::object rows_of(const Tensor& x) {
  SG_CHECK(x.ndim() > 0, "a tensor of one number, without dimensions, cannot be gone through");
  nb::list rows;
  for (int64_t i = 0; i < x.size(0); ++i) rows.append(nb::cast(select(x, 0, i)));
  return nb::iter(rows);
}

}  // namespace

void bind_index(nb::module_& m, TensorClass& tensor) {
  tensor.def("__getitem__", get, "index"_a.none()).def("__setitem__", set, "index"_a.none(), "value"_a);
  tensor.def("__iter__", rows_of, Enters());
  auto put = [](const Tensor& x, nb::handle given, const Tensor& values) {
    std::vector<Index> indices = indices_of(given);
    Wait wait;
    return index_put(x, std::span<const Index>(indices), values);
  };
  const char* doc = "A copy of x with these values at x[index]. Differentiable in both.";
  m.def("index_put", put, "x"_a, "index"_a, "values"_a, doc);
  tensor.def("index_put", put, "index"_a, "values"_a, doc);
  def_both(m, tensor, "index_select", index_select, "dim"_a, "index"_a, "Elements along dim at index (int64).");
  def_both(m, tensor, "gather", gather, "dim"_a, "index"_a, "x[index[i][j]][j] along dim 0, and so on.");
  def_both(m, tensor, "scatter_add", scatter_add, "dim"_a, "index"_a, "src"_a, "A copy of x with src added at index.");
  def_both(m, tensor, "masked_select", masked_select, "mask"_a, "The elements where the mask (uint8) is not 0.");
  def_both(m, tensor, "nonzero", nonzero, "The positions of the elements that are not 0, (n, ndim).");
}

}  // namespace shardgrad::python
