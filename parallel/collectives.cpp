#include <shardgrad/parallel/collectives.h>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>

namespace shardgrad::parallel {
namespace {

using dist::CollectiveOptions;
using dist::ProcessGroup;

TensorOptions like(const Tensor& x) { return {x.dtype(), x.device()}; }

void wait(const dist::Work& work, const Tensor& x) { work.wait(context().backend(x.device()).compute()); }

// Ranks of which only some record an operation would part in backward: they are told apart in forward.
const char* recorded(const Tensor& x) { return x.requires_grad() && grad_enabled() ? "recorded" : "not recorded"; }

// `layout` says what a tensor is to the caller: what moves is flat, and ranks whose layouts differ would mix elements.
CollectiveOptions label(const Tensor& x, const std::string& layout) {
  CollectiveOptions options(dist::Label{"", in_backward() ? "backward" : "forward"});
  options.detail = in_backward() ? layout : concat(layout, ", ", recorded(x));
  return options;
}

std::string along(const Tensor& x, int dim) { return concat(x.shape(), " along ", dim); }

// What sends nothing in forward and something in backward: the next collective compares it and who records it.
void note(const char* op, const Tensor& x, ProcessGroup& group, const std::string& layout) {
  if (!in_backward()) group.note(concat(op, ' ', layout, ' ', recorded(x)));
}

// What moves, without autograd. Along dimension 0 a collective sees a tensor as it lies in memory.

Tensor gathered(const Tensor& x, ProcessGroup& group, const std::string& layout) {
  Tensor full = empty(x.shape().with(0, x.size(0) * group.size()), like(x));
  wait(group.all_gather(full, x, label(x, layout)), x);
  return full;
}

Tensor scattered(const Tensor& x, ProcessGroup& group, const std::string& layout) {
  Tensor part = empty(x.shape().with(0, x.size(0) / group.size()), like(x));
  wait(group.reduce_scatter(part, x, label(x, layout)), x);
  return part;
}

Tensor summed(const Tensor& x, ProcessGroup& group, const std::string& layout) {
  CollectiveOptions options = label(x, layout);
  NoGrad no_grad;
  Tensor sum = clone(x);
  wait(group.all_reduce(sum, options), x);
  return sum;
}

Tensor exchanged(const Tensor& x, ProcessGroup& group, const std::string& layout) {
  Tensor y = empty(x.shape(), like(x));
  wait(group.all_to_all(y, x, label(x, layout)), x);
  return y;
}

Tensor own_part(const Tensor& x, ProcessGroup& group, const std::string& layout) {
  note("scatter", x, group, layout);
  NoGrad no_grad;
  int64_t part = x.size(0) / group.size();
  return clone(slice(x, 0, part * group.rank(), part * (group.rank() + 1)));
}

Tensor itself(const Tensor& x, ProcessGroup& group, const std::string& layout) {
  note("copy", x, group, layout);
  return x.detach();
}

using Move = Tensor (*)(const Tensor&, ProcessGroup&, const std::string& layout);

/// A group that may go before the graph does.
class Lent {
 public:
  Lent() = default;
  explicit Lent(ProcessGroup& group) : group_(&group), life_(group.life()) {}
  ProcessGroup& get(const char* op) const {
    SG_CHECK(!life_.expired(), "backward of ", op, ": its process group is gone; keep it until backward has run");
    return *group_;
  }

 private:
  ProcessGroup* group_ = nullptr;
  std::weak_ptr<const void> life_;
};

/// An operation that moves with one collective, and whose gradient moves with another.
template <Move Gradient> struct Moved final : Node {
  const char* title = "";
  Lent group;
  std::string layout;
  const char* name() const override { return title; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    dx[0].alias(Gradient(dy[0], group.get(title), layout));
  }
};

template <Move Forward, Move Gradient>
Tensor move(const char* name, const Tensor& x, ProcessGroup& group, std::string layout = "") {
  if (layout.empty()) layout = concat(x.shape());
  // Sums and replicated results move alike in forward and part in backward: there one of them sends nothing.
  if constexpr (Gradient == own_part || Gradient == itself) layout = "replicated " + layout;
  Tensor y = Forward(x, group, layout);
  if (auto* node = record<Moved<Gradient>>(y, x)) node->title = name, node->group = Lent(group), node->layout = layout;
  return y;
}

struct Broadcast final : Node {
  Lent group;
  std::string layout;
  int root = 0;
  const char* name() const override { return "broadcast"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    ProcessGroup& ranks = group.get("broadcast");
    Tensor sum = summed(dy[0], ranks, layout);
    dx[0].alias(ranks.rank() == root ? sum : zeros(sum.shape(), like(sum)));
  }
};

int checked_dim(const char* op, const Tensor& x, int dim) {
  SG_CHECK(x.defined() && x.ndim() > 0, op, ": needs a tensor with at least one dimension");
  SG_CHECK(dim >= -x.ndim() && dim < x.ndim(), op, ": there is no dimension ", dim, " in shape ", x.shape());
  return dim < 0 ? dim + x.ndim() : dim;
}

void check_divides(const char* op, const Tensor& x, int dim, const ProcessGroup& group) {
  SG_CHECK(x.size(dim) % group.size() == 0, op, ": dimension ", dim, " of shape ", x.shape(), " does not divide into ",
           group.size(), " equal parts, one for each rank");
}

/// The product of the extents of dimensions [begin, end).
int64_t product(const Shape& shape, int begin, int end) {
  int64_t count = 1;
  for (int d = begin; d < end; ++d) count *= shape[d];
  return count;
}

/// The parts along `dim`, one after the other in memory: (parts, before, x.size(dim) / parts, after).
Tensor parts_first(const Tensor& x, int dim, int64_t parts) {
  int64_t before = product(x.shape(), 0, dim), after = product(x.shape(), dim + 1, x.ndim());
  int64_t extent = x.size(dim) / parts;
  return before == 1 ? reshape(x, {parts, 1, extent, after})
                     : permute(reshape(x, {before, parts, extent, after}), {1, 0, 2, 3});
}

/// The reverse: `parts` tensors of shape `part`, one after the other, joined along dim.
Tensor joined(const Tensor& parts, const Shape& part, int dim, int64_t count) {
  int64_t before = product(part, 0, dim), after = product(part, dim + 1, part.ndim());
  Tensor apart = reshape(parts, {count, before, part[dim], after});
  Shape whole = part.with(dim, part[dim] * count);
  return before == 1 ? reshape(apart, whole) : reshape(permute(apart, {1, 0, 2, 3}), whole);
}

template <Move Forward, Move Gradient>
Tensor gather_along(const char* op, const Tensor& x, ProcessGroup& group, int dim) {
  dim = checked_dim(op, x, dim);
  Tensor flat = reshape(x, {x.numel()});
  return joined(move<Forward, Gradient>(op, flat, group, along(x, dim)), x.shape(), dim, group.size());
}

template <Move Forward, Move Gradient>
Tensor scatter_along(const char* op, const Tensor& x, ProcessGroup& group, int dim) {
  dim = checked_dim(op, x, dim);
  check_divides(op, x, dim, group);
  Tensor flat = reshape(parts_first(x, dim, group.size()), {x.numel()});
  return reshape(move<Forward, Gradient>(op, flat, group, along(x, dim)),
                 x.shape().with(dim, x.size(dim) / group.size()));
}

}  // namespace

Tensor all_gather(const Tensor& x, ProcessGroup& group, int dim) {
  return gather_along<gathered, scattered>("all_gather", x, group, dim);
}

Tensor reduce_scatter(const Tensor& x, ProcessGroup& group, int dim) {
  return scatter_along<scattered, gathered>("reduce_scatter", x, group, dim);
}

Tensor all_reduce(const Tensor& x, ProcessGroup& group) { return move<summed, summed>("all_reduce", x, group); }

Tensor all_to_all(const Tensor& x, ProcessGroup& group, int split_dim, int cat_dim) {
  split_dim = checked_dim("all_to_all", x, split_dim);
  cat_dim = checked_dim("all_to_all", x, cat_dim);
  check_divides("all_to_all", x, split_dim, group);
  Tensor parts = reshape(parts_first(x, split_dim, group.size()), {x.numel()});
  Shape part = x.shape().with(split_dim, x.size(split_dim) / group.size());
  std::string layout = concat(x.shape(), " split along ", split_dim, ", joined along ", cat_dim);
  return joined(move<exchanged, exchanged>("all_to_all", parts, group, layout), part, cat_dim, group.size());
}

Tensor broadcast(const Tensor& x, ProcessGroup& group, int root) {
  Tensor y = [&] {
    NoGrad no_grad;
    return clone(x);
  }();
  std::string layout = concat(x.shape());
  wait(group.broadcast(y, root, label(x, layout)), y);
  if (auto* node = record<Broadcast>(y, x)) node->group = Lent(group), node->layout = layout, node->root = root;
  return y;
}

Tensor copy_to_group(const Tensor& x, ProcessGroup& group) { return move<itself, summed>("copy_to_group", x, group); }

Tensor reduce_from_group(const Tensor& x, ProcessGroup& group) {
  return move<summed, itself>("reduce_from_group", x, group);
}

Tensor gather_from_group(const Tensor& x, ProcessGroup& group, int dim) {
  return gather_along<gathered, own_part>("gather_from_group", x, group, dim);
}

Tensor scatter_to_group(const Tensor& x, ProcessGroup& group, int dim) {
  return scatter_along<own_part, gathered>("scatter_to_group", x, group, dim);
}

Tensor max_over(const Tensor& x, ProcessGroup& group) {
  NoGrad no_grad;
  Tensor all = gathered(reshape(x, {x.numel()}), group, concat(x.shape()));
  return reshape(max(reshape(all, {int64_t(group.size()), -1}), 0).values, x.shape());
}

}  // namespace shardgrad::parallel
