// Where elements lie: shapes, parts, indices.

#include <algorithm>

#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

// x.permute(0, 2, 1) and x.permute((0, 2, 1)) as a method, permute(x, (0, 2, 1)) as a function.
template <class Element, class Of>
void def_listed(nb::module_& m, TensorClass& tensor, const char* name, Of of, const char* doc) {
  auto apply = [of, name](const Tensor& x, const std::vector<int64_t>& given) {
    std::vector<Element> numbers(given.begin(), given.end());
    SG_CHECK(std::ranges::equal(numbers, given), name, ": ", x, " has no such dimension");
    Wait wait;
    return of(x, std::span<const Element>(numbers));
  };
  m.def(
      name, [name, apply](const Tensor& x, nb::handle numbers) { return apply(x, numbers_of(name, numbers)); }, "x"_a,
      "numbers"_a, doc);
  tensor.def(
      name, [name, apply](const Tensor& x, const nb::args& numbers) { return apply(x, numbers_of(name, numbers)); },
      "numbers"_a, doc);
}

void bind_shapes(nb::module_& m, TensorClass& tensor) {
  using Sizes = std::span<const int64_t>;
  using Places = std::span<const int>;
  def_listed<int64_t>(
      m, tensor, "reshape", [](const Tensor& x, Sizes s) { return reshape(x, s); },
      "The same elements in another shape, one extent of which may be -1. Shares memory.");
  tensor.def(
      "view",
      [](const Tensor& x, const nb::args& shape) {
        std::vector<int64_t> extents = numbers_of("view", shape);
        Wait wait;
        return reshape(x, Sizes(extents));
      },
      "shape"_a, "As reshape.");
  def_listed<int>(
      m, tensor, "permute", [](const Tensor& x, Places d) { return permute(x, d); },
      "Dimension d of the result is dimension dims[d] of x. Copies.");
  def_listed<int>(
      m, tensor, "flip", [](const Tensor& x, Places d) { return flip(x, d); },
      "The order along these dimensions turned round.");
  def_listed<int64_t>(
      m, tensor, "repeat", [](const Tensor& x, Sizes t) { return repeat(x, t); },
      "x so many times along each dimension.");
  def_listed<int64_t>(
      m, tensor, "expand",
      [](const Tensor& x, Sizes s) {
        return expand(x, broadcast_of("expand", x, {s.begin(), s.end()}));
      },
      "Broadcast to this shape, in which -1 keeps an extent. Copies.");
}

void bind_dims(nb::module_& m, TensorClass& tensor) {
  def_both(m, tensor, "transpose", transpose, "dim0"_a, "dim1"_a, "Swaps two dimensions. Copies.");
  def_both(m, tensor, "t", t, "A matrix transposed, which copies.");
  tensor.def_prop_ro("T", t, Waits(), "A matrix transposed, which copies.");
  tensor.def_prop_ro(
      "mT", [](const Tensor& x) { return transpose(x, -2, -1); }, Waits(),
      "The last two dimensions swapped, which copies.");
  def_both(m, tensor, "unsqueeze", unsqueeze, "dim"_a, "A new dimension of extent 1. Shares memory.");
  def_both(
      m, tensor, "squeeze", [](const Tensor& x, std::optional<int> dim) { return dim ? squeeze(x, *dim) : squeeze(x); },
      "dim"_a = nb::none(), "Without this dimension where its extent is 1, or without all such.");
  def_both(m, tensor, "flatten", flatten, "start_dim"_a = 0, "end_dim"_a = -1, "These dimensions as one.");
}

void bind_parts(nb::module_& m, TensorClass& tensor) {
  m.def(
      "cat", [](const std::vector<Tensor>& tensors, int dim) { return cat(tensors, dim); }, "tensors"_a, "dim"_a = 0,
      Waits(), "End to end along dim.");
  m.def(
      "stack", [](const std::vector<Tensor>& tensors, int dim) { return stack(tensors, dim); }, "tensors"_a,
      "dim"_a = 0, Waits(), "One after the other along a new dimension.");
  auto split_of = [](const Tensor& x, const std::variant<int64_t, std::vector<int64_t>>& sizes, int dim) {
    if (auto* listed = std::get_if<std::vector<int64_t>>(&sizes)) return split(x, *listed, dim);
    int64_t size = std::get<int64_t>(sizes), extent = x.size(dim);
    SG_CHECK(size > 0, "split: parts of size ", size, " are not possible");
    std::vector<int64_t> all(size_t(extent / size), size);
    if (extent % size || extent == 0) all.push_back(extent % size);
    return split(x, all, dim);
  };
  def_both(m, tensor, "split", split_of, "sizes"_a, "dim"_a = 0, "Parts of this size, or of these sizes, along dim.");
  def_both(m, tensor, "chunk", chunk, "chunks"_a, "dim"_a = 0,
           "So many parts along dim, all but the last of one size.");
  def_both(m, tensor, "select", select, "dim"_a, "index"_a, "Element `index` along dim, without it.");
  def_both(
      m, tensor, "narrow",
      [](const Tensor& x, int dim, int64_t start, int64_t length) {
        SG_CHECK(start >= 0 && length >= 0, "narrow: ", length, " elements from ", start, " on are not possible");
        return slice(x, dim, start, start + length);
      },
      "dim"_a, "start"_a, "length"_a, "`length` elements along dim.");
  def_both(m, tensor, "roll", roll, "shifts"_a, "dims"_a,
           "Elements move along dim, those at the end to the beginning.");
  def_both(m, tensor, "tril", tril, "diagonal"_a = 0, "The lower triangle of the last two dimensions.");
  def_both(m, tensor, "triu", triu, "diagonal"_a = 0, "The upper triangle of the last two dimensions.");
}

}  // namespace

void bind_layout(nb::module_& m, TensorClass& tensor) {
  bind_shapes(m, tensor);
  bind_dims(m, tensor);
  bind_parts(m, tensor);
}

}  // namespace shardgrad::python
