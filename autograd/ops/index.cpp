// Python's x[…]: entries are worked off from the left. `at` is the dimension of what has been made so far that the next
// entry speaks of.
//
//     x (4, 5, 6)   x.index({2, Slice(1, 3), None, Ellipsis})
//                   2: (5, 6), at 0      1:3: (2, 6), at 1      None: (2, 1, 6), at 2      …: at 3

#include <algorithm>
#include <array>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

using Entries = std::span<const Index>;

const Tensor* tensor_in(const Index& index) { return std::get_if<Tensor>(&index.entry); }
bool is_mask(const Tensor& index) { return index.dtype() == DType::u8; }

// How many dimensions of x an entry speaks of.
int dims_of(const Index& index) {
  if (std::holds_alternative<std::nullopt_t>(index.entry) || std::holds_alternative<EllipsisType>(index.entry))
    return 0;
  const Tensor* tensor = tensor_in(index);
  return tensor && is_mask(*tensor) ? tensor->ndim() : 1;
}

void check_entries(const Tensor& x, Entries entries) {
  int dims = 0, ellipses = 0;
  for (const Index& index : entries) {
    dims += dims_of(index);
    ellipses += std::holds_alternative<EllipsisType>(index.entry);
    if (const Tensor* tensor = tensor_in(index)) {
      SG_CHECK(tensor->dtype() == DType::i64 || is_mask(*tensor), "index: an index is i64, or u8 for a mask, got ",
               *tensor, " for ", x, "; convert it with .to(dtype)");
      SG_CHECK(tensor->device() == x.device(), "index: the index is on ", tensor->device(), ", the tensor on ",
               x.device(), "; move one with .to(device)");
    }
  }
  SG_CHECK(ellipses <= 1, "index: one Ellipsis at most");
  SG_CHECK(dims <= x.ndim(), "index: ", dims, " indices for shape ", x.shape());
}

// The ends as Python has them: counted from the back where negative, within the dimension.
Tensor sliced(const Tensor& y, int at, const Slice& s) {
  SG_CHECK(s.step >= 1, "index: step ", s.step, " is not possible; flip(x, {dim}) turns the order round");
  int64_t n = y.size(at);
  auto within = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  int64_t begin = within(s.begin.value_or(0)), end = within(s.end.value_or(n));
  return begin == 0 && end == n && s.step == 1 ? y : slice(y, at, begin, std::max(begin, end), s.step);
}

Shape joined(const Shape& shape, int at, int count, const Shape& between) {
  std::vector<int64_t> extents(shape.begin(), shape.begin() + at);
  extents.insert(extents.end(), between.begin(), between.end());
  extents.insert(extents.end(), shape.begin() + at + count, shape.end());
  return Shape(std::span<const int64_t>(extents));
}

// The elements of dimensions [at, at + index tensors) that the tensors name together.
Tensor picked(const Tensor& y, int at, Entries tensors) {
  int count = int(tensors.size());
  Shape shape = tensor_in(tensors[0])->shape();
  for (const Index& index : tensors) shape = broadcast_shapes("index", shape, tensor_in(index)->shape());
  Tensor place;  // among the elements of all these dimensions
  int64_t elements = 1;
  for (int k = 0; k < count; ++k) {
    Tensor index = *tensor_in(tensors[size_t(k)]);
    if (count > 1) {
      int64_t n = y.size(at + k);
      SG_CHECK(
          index.device() == kMeta || index.numel() == 0 || (min(index).item() >= 0 && max(index).item() < double(n)),
          "index: index ", k, " has values outside [0, ", n, "), dimension ", at + k, " of ", y.shape());
      place = place.defined() ? affine(place, double(n), 0) + index : index;
    } else {
      place = index;
    }
    elements *= y.size(at + k);
  }
  Tensor flat = reshape(expand(place, shape), {shape.numel()});
  Tensor merged = reshape(y, joined(y.shape(), at, count, {elements}));
  return reshape(index_select(merged, at, flat), joined(y.shape(), at, count, shape));
}

Tensor masked(const Tensor& y, int at, const Tensor& mask) {
  int count = mask.ndim();
  Shape part(std::span(y.shape().begin() + at, size_t(count)));
  SG_CHECK(mask.shape() == part, "index: the mask ", mask.shape(), " does not fit dimensions of ", y.shape());
  Tensor merged = reshape(y, joined(y.shape(), at, count, {mask.numel()}));
  return index_select(merged, at, reshape(nonzero(reshape(mask, {mask.numel()})), {-1}));
}

// Works off the entries from `k` on that belong together; gives how many.
size_t apply(Tensor& y, int& at, Entries entries, size_t k, int skipped) {
  const auto& entry = entries[k].entry;
  if (auto* i = std::get_if<int64_t>(&entry)) {
    y = select(y, at, *i);
  } else if (auto* s = std::get_if<Slice>(&entry)) {
    y = sliced(y, at++, *s);
  } else if (std::holds_alternative<std::nullopt_t>(entry)) {
    y = unsqueeze(y, at++);
  } else if (std::holds_alternative<EllipsisType>(entry)) {
    at += skipped;
  } else if (const Tensor& tensor = std::get<Tensor>(entry); is_mask(tensor)) {
    y = masked(y, at++, tensor);
  } else {
    size_t count = 1;
    while (k + count < entries.size() && tensor_in(entries[k + count]) && !is_mask(*tensor_in(entries[k + count])))
      ++count;
    int before = y.ndim();
    y = picked(y, at, entries.subspan(k, count));
    at += y.ndim() - before + int(count);
    return count;
  }
  return 1;
}

// Where index tensors stand apart PyTorch moves their dimensions to the front; nobody means that.
void check_together(const Tensor& x, Entries entries) {
  int groups = 0;
  for (size_t k = 0; k < entries.size(); ++k)
    groups += tensor_in(entries[k]) && (k == 0 || !tensor_in(entries[k - 1]) || is_mask(*tensor_in(entries[k])) ||
                                        is_mask(*tensor_in(entries[k - 1])));
  SG_CHECK(groups <= 1, "index: index tensors of ", x.shape(), " with something between them, or masks beside others, ",
           "are not possible; index in two steps");
}

Tensor index_by(const Tensor& x, Entries entries) {
  check_entries(x, entries);
  check_together(x, entries);
  int skipped = x.ndim(), at = 0;
  for (const Index& index : entries) skipped -= dims_of(index);
  Tensor y = x;
  for (size_t k = 0; k < entries.size();) k += apply(y, at, entries, k, skipped);
  return y;
}

Tensor flattened(const Tensor& x) { return x.alias({x.numel()}); }

bool masks_whole(const Tensor& x, const Index& index) {
  const Tensor* tensor = tensor_in(index);
  return tensor && is_mask(*tensor) && tensor->shape() == x.shape() && tensor->device() == x.device();
}

// How many of the last dimensions no index is of: what lies along them goes together.
int untouched(const Tensor& x, Entries entries) {
  int rest = x.ndim();
  for (const Index& index : entries) rest -= dims_of(index);
  for (size_t k = 0; k + 1 < entries.size(); ++k)
    if (std::holds_alternative<EllipsisType>(entries[k].entry)) return 0;
  return rest;
}

Shape behind(const Shape& first, const Shape& last) {
  std::vector<int64_t> extents(first.begin(), first.end());
  extents.insert(extents.end(), last.begin(), last.end());
  return Shape(std::span<const int64_t>(extents));
}

// Where the values go: numbers of rows, which are the last dimensions of the tensor that they are put in.
struct Places {
  Tensor places;
  Shape row;
  Shape written() const { return behind(places.shape(), row); }
  Shape rows(int64_t count) const { return row.numel() == 1 ? Shape{count} : Shape{count, row.numel()}; }
  Tensor rows_of(const Tensor& x) const { return x.alias(rows(row.numel() ? x.numel() / row.numel() : 0)); }
};

struct IndexPut final : Node {
  const char* name() const override { return "index_put"; }
  Shape value_shape, row;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    Places to{saved(0), row};
    Tensor from = to.rows_of(dy[0]), at = flattened(to.places);
    TensorOptions options{from.dtype(), from.device()};
    Shape rows = to.rows(at.numel());
    if (dx[0].wanted()) {
      Tensor rest = of_each(kernels::copy, dy[0]);
      launch(kernels::scatter, from, view_of(out(rest), from.shape()), zeros(rows, options), at, 0);
      dx[0].alias(rest);
    }
    if (!dx[1].wanted()) return;
    Tensor taken = empty(rows, options);
    launch(kernels::index_select, from, out(taken), from, at, 0);
    reduce_to(dx[1], taken.alias(to.written()), value_shape);
  }
};

// Only index tensors can name an element twice: what they name of their dimensions is counted.
void check_named_once(const Tensor& x, Entries entries) {
  std::vector<Index> tensors;
  std::vector<int64_t> extents;
  int at = 0, skipped = x.ndim();
  for (const Index& index : entries) skipped -= dims_of(index);
  for (const Index& index : entries) {
    if (const Tensor* tensor = tensor_in(index); tensor && !is_mask(*tensor)) {
      tensors.push_back(index);
      extents.push_back(x.size(at));
    }
    at += std::holds_alternative<EllipsisType>(index.entry) ? skipped : dims_of(index);
  }
  Shape named(std::span<const int64_t>{extents});
  if (tensors.empty() || named.numel() == 0 || x.device() == kMeta) return;
  Tensor all = arange(named.numel(), {DType::i64, x.device()}), places = flattened(index_by(all.alias(named), tensors));
  TensorOptions counts{DType::i32, x.device()};
  Tensor times = scatter_add(zeros(all.shape(), counts), 0, places, ones(places.shape(), counts));
  SG_CHECK(max(times).item() <= 1, "index_put: an element of ", x.shape(),
           " is named twice, and would get one value or the other");
}

// The positions of what is set, one after the other. All are written, and those of what is not set over again: which
// they are cannot be foretold, and a wrong guess of a branch costs more.
std::vector<int64_t> positions_of(const std::vector<uint8_t>& set, const Shape& shape, size_t count) {
  size_t ndim = size_t(shape.ndim()), cols = ndim ? size_t(shape[-1]) : 1, at = 0;
  std::vector<int64_t> positions((count + 1) * ndim);
  std::array<int64_t, kMaxDims> position{};
  for (size_t first = 0; first < set.size(); first += cols) {
    int64_t left = int64_t(first / cols);
    for (int d = shape.ndim() - 2; d >= 0; left /= shape[d--]) position[size_t(d)] = left % shape[d];
    for (size_t c = 0; c < cols; ++c) {
      for (size_t d = 0; d + 1 < ndim; ++d) positions[at + d] = position[d];
      if (ndim) positions[at + ndim - 1] = int64_t(c);
      at += ndim * size_t(set[first + c] != 0);
    }
  }
  positions.resize(count * ndim);
  return positions;
}

}  // namespace

Tensor index(const Tensor& x, Entries indices) { return index_by(x, indices); }
Tensor index(const Tensor& x, std::initializer_list<Index> indices) {
  return index(x, Entries(indices.begin(), indices.size()));
}

// Numbers of all rows, indexed the same way, say where the values go. One value for a mask is chosen by it.
Tensor index_put(const Tensor& x, Entries indices, const Tensor& values) {
  if (should_promote(x, values)) return index_put(widened(x), indices, widened(values));
  check_same_kind("index_put", x, values);
  if (values.numel() == 1 && indices.size() == 1 && masks_whole(x, indices[0]))
    return where(*tensor_in(indices[0]), reshape(values, Shape()), x);
  check_entries(x, indices);
  auto row = size_t(untouched(x, indices)), indexed = size_t(x.ndim()) - row;
  Shape outer(std::span(x.shape().begin(), indexed));
  Tensor all = arange(outer.numel(), {DType::i64, x.device()});
  Places to{index(all.alias(outer), indices), Shape(std::span(x.shape().begin() + indexed, row))};
  Shape written = to.written();
  if (values.ndim() > written.ndim() && values.size(0) == 1) return index_put(x, indices, squeeze(values, 0));
  SG_CHECK(broadcast_shapes("index_put", written, values.shape()) == written, "index_put: values ", values.shape(),
           " do not broadcast to the ", written, " that is written");
  check_named_once(x, indices);
  Tensor y = of_each(kernels::copy, x), given = expand(values.detach(), written);
  launch(kernels::scatter, x, view_of(out(y), to.rows(outer.numel())), to.rows_of(given), flattened(to.places), 0);
  if (auto* node = record<IndexPut>(y, x, values)) {
    node->value_shape = values.shape();
    node->row = to.row;
    node->save(to.places);
  }
  return y;
}
Tensor index_put(const Tensor& x, std::initializer_list<Index> indices, const Tensor& values) {
  return index_put(x, Entries(indices.begin(), indices.size()), values);
}
Tensor index_put(const Tensor& x, std::initializer_list<Index> indices, Scalar value) {
  return index_put(x, indices, number_beside("index_put", x, value));
}

Tensor nonzero(const Tensor& x) {
  SG_CHECK(x.device() != kMeta, "nonzero: a tensor on meta has no values to look at");
  std::vector<uint8_t> set = (x.dtype() == DType::u8 ? x : nonzero_flags(x)).to_vector<uint8_t>();
  int64_t count = std::ssize(set) - std::ranges::count(set, 0);
  return from_vector(positions_of(set, x.shape(), size_t(count)), {count, x.ndim()}, {DType::i64, x.device()});
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  SG_CHECK(mask.shape() == x.shape(), "masked_select: the mask ", mask.shape(), " has not the shape ", x.shape());
  return index(x, {mask});
}

}  // namespace shardgrad
