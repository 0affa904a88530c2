// What is made of other operations, under the names that PyTorch's programs use.

#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>

#include <shardgrad/python/bind.h>
#include <shardgrad/python/rounded.h>

namespace shardgrad::python {
namespace {

using Tensors = std::vector<Tensor>;

Tensor places_on(const Tensor& x, const std::vector<int64_t>& places) {
  return from_vector(places, {int64_t(places.size())}, {DType::i64, x.device()});
}

// --- joined and taken apart -----------------------------------------------------------------------------------------

// New dimensions of extent 1 stand in front.
Tensors with_dims(const Tensors& tensors, int least) {
  Tensors found = tensors;
  for (Tensor& each : found)
    while (each.ndim() < least) each = unsqueeze(each, 0);
  return found;
}
Tensor hstack(const Tensors& tensors) {
  Tensors rows = with_dims(tensors, 1);
  return cat(rows, !rows.empty() && rows[0].ndim() == 1 ? 0 : 1);
}
Tensor vstack(const Tensors& tensors) { return cat(with_dims(tensors, 2), 0); }

Tensors unbind(const Tensor& x, int dim) {
  Tensors found;
  for (int64_t i = 0, count = x.size(dim); i < count; ++i) found.push_back(select(x, dim, i));
  return found;
}

using Repeats = std::variant<int64_t, Tensor>;
Tensor repeat_interleave(const Tensor& x, const Repeats& repeats, std::optional<int> dim) {
  if (!dim) return repeat_interleave(flatten(x), repeats, 0);
  int64_t extent = x.size(*dim);
  std::vector<int64_t> times(size_t(extent), 0), places;
  if (auto* one = std::get_if<int64_t>(&repeats)) {
    std::ranges::fill(times, *one);
  } else {
    const Tensor& given = std::get<Tensor>(repeats);
    SG_CHECK(!is_floating(given.dtype()), "repeat_interleave: ", given, " are no numbers of times; convert to int64");
    auto each = given.to(kCpu).to(DType::i64).to_vector<int64_t>();
    times = each.size() == 1 ? std::vector<int64_t>(size_t(extent), each[0]) : each;
  }
  SG_CHECK(int64_t(times.size()) == extent && std::ranges::all_of(times, [](int64_t n) { return n >= 0; }),
           "repeat_interleave: dimension ", *dim, " of ", x, " needs ", extent, " numbers of times, none negative");
  for (int64_t i = 0; i < extent; ++i) places.insert(places.end(), size_t(times[size_t(i)]), i);
  return index_select(x, *dim, places_on(x, places));
}

Tensor tile(const Tensor& x, std::vector<int64_t> times) {
  Wait wait;
  while (int(times.size()) < x.ndim()) times.insert(times.begin(), 1);
  return repeat(x, times);
}

// Given one by one or as one list.
Tensors axes_of(const nb::args& given) {
  bool listed = given.size() == 1 && (nb::isinstance<nb::list>(given[0]) || nb::isinstance<nb::tuple>(given[0]));
  Tensors axes;
  for (nb::handle each : listed ? nb::handle(given[0]) : nb::handle(given)) {
    SG_CHECK(nb::isinstance<Tensor>(each), "meshgrid: ", nb::repr(each).c_str(), " is no tensor");
    axes.push_back(nb::cast<Tensor>(each));
  }
  return axes;
}
Tensors meshgrid(Tensors axes, bool turned) {
  if (turned && axes.size() > 1) std::swap(axes[0], axes[1]);
  std::vector<int64_t> extents;
  for (const Tensor& axis : axes) extents.push_back(axis.numel());
  for (size_t i = 0; i < axes.size(); ++i) {
    SG_CHECK(axes[i].ndim() <= 1, "meshgrid: ", axes[i], " is no row of numbers");
    std::vector<int64_t> along(axes.size(), 1);
    along[i] = extents[i];
    axes[i] = expand(reshape(axes[i], along), shape_of(extents));
  }
  if (turned && axes.size() > 1) std::swap(axes[0], axes[1]);
  return axes;
}

void bind_joined(nb::module_& m, TensorClass& tensor) {
  for (const char* name : {"concat", "concatenate"})
    m.def(
        name, [](const Tensors& tensors, int dim) { return cat(tensors, dim); }, "tensors"_a, "dim"_a = 0, Waits(),
        "End to end along dim, as cat.");
  m.def("hstack", hstack, "tensors"_a, Waits(), "Side by side: along dim 1, rows of numbers along dim 0.");
  m.def("vstack", vstack, "tensors"_a, Waits(), "One above the other: along dim 0, rows of numbers as matrices.");
  def_both(m, tensor, "unbind", unbind, "dim"_a = 0,
           "The elements along dim, without it. They share memory along dim 0, and are copies along others.");
  def_both(m, tensor, "repeat_interleave", repeat_interleave, "repeats"_a, "dim"_a = nb::none(),
           "Each element along dim so many times, one number for all or one for each; without dim of all in a row.");
  m.def(
      "tile", [](const Tensor& x, nb::handle dims) { return tile(x, numbers_of("tile", dims)); }, "x"_a, "dims"_a,
      "x so many times along its last dimensions.");
  tensor.def(
      "tile", [](const Tensor& x, const nb::args& dims) { return tile(x, numbers_of("tile", dims)); }, "dims"_a,
      "x so many times along its last dimensions.");
  m.def(
      "meshgrid",
      [](const nb::args& tensors, std::string_view indexing) {
        SG_CHECK(indexing == "ij" || indexing == "xy", "meshgrid: indexing '", indexing, "' is neither ij nor xy");
        Tensors axes = axes_of(tensors);
        Wait wait;
        return meshgrid(axes, indexing == "xy");
      },
      "tensors"_a, nb::kw_only(), "indexing"_a = "ij",
      "Each row of numbers along a dimension of its own, broadcast; with 'xy' the first two change places.");
}

// --- diagonals ------------------------------------------------------------------------------------------------------

Tensor diagonal(const Tensor& x, int64_t offset, int dim1, int dim2) {
  int first = check_dim("diagonal", x, dim1), second = check_dim("diagonal", x, dim2);
  SG_CHECK(first != second, "diagonal: dimensions ", dim1, " and ", dim2, " of ", x, " are one");
  std::vector<int> order;
  for (int d = 0; d < x.ndim(); ++d)
    if (d != first && d != second) order.push_back(d);
  order.insert(order.end(), {first, second});
  int64_t rows = x.size(first), columns = x.size(second);
  std::vector<int64_t> places;
  for (int64_t row = std::max<int64_t>(0, -offset); row < rows && row + offset < columns; ++row)
    places.push_back(row * columns + row + offset);
  return index_select(flatten(permute(x, order), -2, -1), -1, places_on(x, places));
}

// Of a row of numbers a matrix with it, of a matrix its diagonal.
Tensor diag(const Tensor& x, int64_t offset) {
  if (x.ndim() == 2) return diagonal(x, offset, 0, 1);
  SG_CHECK(x.ndim() == 1, "diag: ", x, " is neither a row of numbers nor a matrix");
  int64_t extent = x.size(0) + std::abs(offset);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < x.size(0); ++i)
    places.push_back((i + std::max<int64_t>(0, -offset)) * extent + i + std::max<int64_t>(0, offset));
  Tensor none = zeros({extent * extent}, {x.dtype(), x.device()});
  return reshape(index_put(none, {places_on(x, places)}, x), {extent, extent});
}

Tensor trace(const Tensor& x) {
  SG_CHECK(x.ndim() == 2, "trace: ", x, " is no matrix");
  return sum(diagonal(x, 0, 0, 1));
}

void bind_diagonals(nb::module_& m, TensorClass& tensor) {
  def_both(m, tensor, "diagonal", diagonal, "offset"_a = 0, "dim1"_a = 0, "dim2"_a = 1,
           "A copy of the diagonals of two dimensions, as the last one; `offset` above the main one.");
  def_both(m, tensor, "diag", diag, "diagonal"_a = 0, "A matrix with this diagonal, or the diagonal of a matrix.");
  def_both(m, tensor, "trace", trace, "The sum of a matrix's diagonal.");
}

// --- of elements ----------------------------------------------------------------------------------------------------

Tensor dot(const Tensor& x, const Tensor& other) {
  SG_CHECK(x.ndim() == 1 && other.ndim() == 1, "dot: ", x, " and ", other, " are not two rows of numbers");
  return matmul(x, other);
}

Tensor tangent(const Tensor& x) { return sin(x) / cos(x); }

// Where x is a power of the base, what is missing to the whole number is added, which has no gradient.
Tensor log_to(double base, const Tensor& x) {
  Tensor y = log(x) * (1 / std::log(base));
  Tensor values = y.detach(), near = round(values);
  Tensor whole = logical_and(eq(pow(base, near), x.detach()), abs(near) < 1e4);  // infinities stay as they are
  return y + masked_fill(near - values, logical_not(whole), 0);
}

void bind_elements(nb::module_& m, TensorClass& tensor) {
  def_both(m, tensor, "dot", dot, "other"_a, "The sum of the products of two rows of numbers.");
  def_both(
      m, tensor, "log2", [](const Tensor& x) { return rounded_once(x, [](const Tensor& y) { return log_to(2, y); }); },
      "The logarithm to base 2, without an error where x is a power of 2.");
  def_both(
      m, tensor, "log10",
      [](const Tensor& x) { return rounded_once(x, [](const Tensor& y) { return log_to(10, y); }); },
      "The logarithm to base 10, without an error where x is a power of 10.");
  def_both(
      m, tensor, "tan", [](const Tensor& x) { return rounded_once(x, tangent); },
      "The tangent of x, an angle in radians.");
}

// --- as another one -------------------------------------------------------------------------------------------------

TensorOptions options_beside(const Tensor& x, std::optional<DType> dtype, const DeviceName& device) {
  return {dtype.value_or(x.dtype()), device ? place_of(*device) : x.device()};
}
template <class Make> void def_new(TensorClass& tensor, const char* name, Make make, const char* doc) {
  tensor.def(
      name,
      [name, make](const Tensor& x, const nb::args& size, std::optional<DType> dtype, const DeviceName& device) {
        std::vector<int64_t> extents = numbers_of(name, size);
        TensorOptions options = options_beside(x, dtype, device);
        Wait wait;
        return make(shape_of(extents), options);
      },
      "size"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), doc);
}

void bind_like(nb::module_& m, TensorClass& tensor) {
  auto broadcast_to = [](const Tensor& x, nb::handle size) {
    std::vector<int64_t> extents = numbers_of("broadcast_to", size);
    Wait wait;
    return expand(x, broadcast_of("broadcast_to", x, extents));
  };
  m.def("broadcast_to", broadcast_to, "x"_a, "size"_a, "Broadcast to this shape, which copies.");
  tensor.def("broadcast_to", broadcast_to, "size"_a, "Broadcast to this shape, which copies.")
      .def(
          "expand_as", [](const Tensor& x, const Tensor& other) { return expand(x, other.shape()); }, "other"_a,
          Waits(), "Broadcast to the other's shape, which copies.")
      .def(
          "view_as", [](const Tensor& x, const Tensor& other) { return reshape(x, other.shape()); }, "other"_a, Waits(),
          "The same elements in the other's shape. Shares memory.")
      .def(
          "type_as", [](const Tensor& x, const Tensor& other) { return x.to(other.dtype()).to(other.device()); },
          "other"_a, Waits(), "Of the other's dtype, on its device.")
      .def(
          "new_full",
          [](const Tensor& x, nb::handle size, const Number& value, std::optional<DType> dtype,
             const DeviceName& device) {
            std::vector<int64_t> extents = numbers_of("new_full", size);
            TensorOptions options = options_beside(x, dtype, device);
            Wait wait;
            return full(shape_of(extents), scalar_of(value), options);
          },
          "size"_a, "fill_value"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
          "One number everywhere, of x's dtype and device.");
  def_new(
      tensor, "new_zeros", [](const Shape& s, TensorOptions o) { return zeros(s, o); },
      "Zeros of this shape, of x's dtype and device.");
  def_new(
      tensor, "new_ones", [](const Shape& s, TensorOptions o) { return ones(s, o); },
      "Ones of this shape, of x's dtype and device.");
}

}  // namespace

void bind_composites(nb::module_& m, TensorClass& tensor) {
  bind_joined(m, tensor);
  bind_diagonals(m, tensor);
  bind_elements(m, tensor);
  bind_like(m, tensor);
}

}  // namespace shardgrad::python
