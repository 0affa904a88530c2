#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// The loss is symmetric in its operands, so the target's gradient is the same kernel with the two exchanged.
struct MseLoss final : Node {
  const char* name() const override { return "mse_loss"; }
  double scale = 1;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &x = saved(0), &target = saved(1);
    if (dx[0].wanted()) launch(kernels::mse_backward, x, dx[0].write(), dy[0], x, target, scale);
    if (dx[1].wanted()) launch(kernels::mse_backward, x, dx[1].write(), dy[0], target, x, scale);
  }
};

struct CrossEntropy final : Node {
  const char* name() const override { return "cross_entropy"; }
  kernels::CrossEntropyArgs args{};
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &lse = saved(1), &labels = saved(2), &rows = saved(3);
    Tensor dloss = rows.defined() ? div(dy[0], rows) : dy[0], logits = take_saved(0);
    if (!logits.unique())
      return launch(kernels::cross_entropy_backward, logits, dx[0].write(), dloss, logits, lse, labels, args);
    logits = logits.detach();  // its memory becomes the gradient's, which has no graph
    launch(kernels::cross_entropy_backward, logits, out(logits), dloss, logits, lse, labels, args);
    dx[0].alias(logits);
  }
};

// Calls work(begin, end) for parts of `count` rows, `each` at a time (0: all); of no rows once, for what it writes.
template <class Work> void for_parts(int64_t count, int64_t each, const Work& work) {
  int64_t begin = 0;
  do {
    int64_t end = each > 0 ? std::min(count, begin + each) : count;
    work(begin, end);
    begin = end;
  } while (begin < count);
}

void make_logits(const Tensor& logits, const Tensor& x, const Tensor& weight) {
  launch(kernels::matmul, x, out(logits), unwanted(), x, weight, Tensor(), kernels::MatmulArgs{false, true});
}

// Logits that were kept become their own gradient, where nobody else needs them; those that were not are made again,
// part by part.
struct LinearCrossEntropy final : Node {
  const char* name() const override { return "linear_cross_entropy"; }
  kernels::CrossEntropyArgs args{};
  int64_t rows = 0;  // at a time

  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &x = saved(0), &weight = saved(1), &labels = saved(2), &lse = saved(3), &count = saved(4);
    Tensor dloss = count.defined() ? div(dy[0], count) : dy[0], kept = rows == 0 ? take_saved(5) : Tensor();
    Tensor room = kept.defined() && kept.unique() ? kept.detach() : room_for(kept, weight, lse.size(0));
    Out to_x = destination(dx[0]), to_weight = destination(dx[1]);
    for_parts(lse.size(0), rows, [&](int64_t begin, int64_t end) {
      Tensor slopes = room.alias_rows(0, end - begin), logits = kept.defined() ? kept : slopes;
      Tensor in = x.defined() ? x.alias_rows(begin, end) : Tensor();
      if (!kept.defined()) make_logits(logits, in, weight);
      launch(kernels::cross_entropy_backward, logits, out(slopes), dloss, logits, lse.alias_rows(begin, end),
             labels.alias_rows(begin, end), args);
      if (to_weight.tensor.defined())
        launch(kernels::linear_backward_weight, slopes, out(to_weight.tensor, begin > 0 ? 1 : to_weight.beta),
               unwanted(), slopes, in);
      if (to_x.tensor.defined())
        launch(kernels::linear_backward_input, slopes, out(to_x.tensor.alias_rows(begin, end), to_x.beta), slopes,
               weight, Tensor(), Tensor());
    });
  }

 private:
  Tensor room_for(const Tensor& kept, const Tensor& weight, int64_t count) const {
    if (kept.defined()) return empty_like(kept);
    return empty({std::min(rows, count), weight.size(0)}, {weight.dtype(), weight.device()});
  }
};

// Ranks add up their gradients: means of each rank's part would give gradients as many times too large as there are
// ranks. `part`: what this rank's part has, `whole`: what the batch has.
bool is_one_of_several(bool recorded) { return recorded && grad_enabled() && context().world_size() > 1; }

}  // namespace

void check_loss_count(const char* op, std::optional<double> count, bool recorded, const char* part, const char* whole) {
  SG_CHECK(!count || *count >= 0, op, ": count ", *count, " is negative");
  SG_CHECK(count || !is_one_of_several(recorded), op, ": on ", context().world_size(),
           " ranks a loss needs its count, because the ranks' gradients are added up: pass the number of ", whole,
           " of the whole batch, over all ranks (see data::Batch::global_count); where each rank trains by itself, of ",
           part);
}

namespace {

// What a sum is divided by where no count is given, or 0: how many labels count, at least 1, as one element on the
// labels' device, for the host need not read them. `none`: that of the whole batch is known to be 0. If one does count
// all the same it is 0, and the loss infinite.
Tensor counted_rows(const Tensor& labels, int64_t ignore_index, DType dtype, bool none) {
  Tensor rows = sum(cast(counted_labels(labels, ignore_index), dtype));
  if (none) return cast(eq(rows, zeros({}, {dtype, labels.device()})), dtype);
  return clamp(rows, 1, double(std::max<int64_t>(labels.numel(), 1)));
}

void check_cross_entropy(const Tensor& logits, const Tensor& labels, std::optional<double> count, int64_t classes) {
  check_floating("cross_entropy", logits);
  SG_CHECK(logits.ndim() == 2 && labels.ndim() == 1 && labels.size(0) == logits.size(0), "cross_entropy: logits ",
           logits.shape(), " and labels ", labels.shape(), " do not fit; they must be (N, classes) and (N)");
  SG_CHECK(labels.dtype() == DType::i64, "cross_entropy: labels must be i64, got ", labels, " for logits ",
           logits.shape(), "; convert them with .to(dtype)");
  SG_CHECK(labels.device() == logits.device(), "cross_entropy: logits ", logits.shape(), " are on ", logits.device(),
           ", labels ", labels.shape(), " on ", labels.device(), "; move one with .to(device)");
  SG_CHECK(classes >= 0 && classes <= logits.size(1), "cross_entropy: ", classes, " classes in logits ", logits.shape(),
           "; there can be as many as columns, or fewer, where the others are padding");
  check_loss_count("cross_entropy", count, needs_grad(logits), "its own labels", "labels");
}

void check_linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels,
                                const LinearCrossEntropyOptions& options) {
  const char* op = "linear_cross_entropy";
  check_same_kind(op, x, weight);
  check_floating(op, x);
  SG_CHECK(!x.same_as(weight), op, ": input and weight must be different tensors; clone() one");
  SG_CHECK(x.ndim() == 2 && weight.ndim() == 2 && x.size(1) == weight.size(1), op, ": input ", x.shape(),
           " does not fit weight ", weight.shape(), "; they must be (N, in) and (classes, in)");
  SG_CHECK(labels.ndim() == 1 && labels.size(0) == x.size(0), op, ": input ", x.shape(), " and labels ", labels.shape(),
           " do not fit; they must be (N, in) and (N)");
  SG_CHECK(labels.dtype() == DType::i64, op, ": labels must be i64, got ", labels, " for input ", x.shape(),
           "; convert them with .to(dtype)");
  SG_CHECK(labels.device() == x.device(), op, ": input ", x.shape(), " is on ", x.device(), ", labels ", labels.shape(),
           " on ", labels.device(), "; move one with .to(device)");
  SG_CHECK(options.classes >= 0 && options.classes <= weight.size(0), op, ": ", options.classes,
           " classes do not fit weight ", weight.shape(),
           "; there can be as many as it has rows, or 0 for all of them");
  SG_CHECK(options.rows >= 0, op, ": rows ", options.rows, " is negative");
  check_loss_count(op, options.count, needs_grad(x) || needs_grad(weight), "its own labels", "labels");
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, std::optional<double> given) {
  if (should_widen(x, target)) return mse_loss(widened(x), widened(target), given);
  check_same_kind("mse_loss", x, target);
  check_floating("mse_loss", x);
  SG_CHECK(x.shape() == target.shape(), "mse_loss: input ", x.shape(), " and target ", target.shape(),
           " must have the same shape");
  bool recorded = needs_grad(x) || needs_grad(target);
  check_loss_count("mse_loss", given, recorded, "x, x.numel()", "elements");
  double count = given.value_or(0);
  SG_CHECK(given != 0.0 || x.numel() == 0, "mse_loss: count 0, but x is ", x.shape(),
           "; the count is the number of elements of the whole batch, over all ranks");
  if (count == 0) count = double(std::max<int64_t>(x.numel(), 1));
  Tensor loss = empty({}, {sum_dtype(x.dtype()), x.device()});
  launch(kernels::mse, x, out(loss), x, target, 1 / count);
  if (auto* node = record<MseLoss>(loss, x, target)) {
    node->scale = 1 / count;
    node->save(x, target);
  }
  return loss;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, std::optional<double> given, int64_t ignore_index,
                     int64_t classes) {
  check_cross_entropy(logits, labels, given, classes);
  double count = given.value_or(0);
  TensorOptions wide{sum_dtype(logits.dtype()), logits.device()};
  Tensor loss = empty({}, wide), lse = empty({logits.size(0), 2}, wide), rows;
  kernels::CrossEntropyArgs args{count > 0 ? 1 / count : 1.0, ignore_index, classes};
  launch(kernels::cross_entropy, logits, out(loss), out(lse), logits, labels, args);
  if (count == 0) {
    rows = counted_rows(labels, ignore_index, wide.dtype, is_one_of_several(needs_grad(logits)));
    loss = div(loss, rows);
  }
  if (auto* node = record<CrossEntropy>(loss, logits)) {
    node->args = args;
    node->save(logits, lse, labels, rows);
  }
  return loss;
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels,
                            const LinearCrossEntropyOptions& options) {
  if (should_lower(x, weight)) return linear_cross_entropy(lowered(x), lowered(weight), labels, options);
  check_linear_cross_entropy(x, weight, labels, options);
  int64_t count = x.size(0), each = options.rows > 0 ? std::min(options.rows, count) : count;
  TensorOptions wide{sum_dtype(x.dtype()), x.device()};
  Tensor loss = empty({}, wide), lse = empty({count, 2}, wide), counted;
  Tensor logits = empty({each, weight.size(0)}, {x.dtype(), x.device()});
  double batch = options.count.value_or(0), scale = batch > 0 ? 1 / batch : 1.0;
  kernels::CrossEntropyArgs args{scale, options.ignore_index, options.classes};
  for_parts(count, options.rows, [&](int64_t begin, int64_t end) {
    Tensor part = logits.alias_rows(0, end - begin);
    make_logits(part, x.alias_rows(begin, end), weight);
    launch(kernels::cross_entropy, part, out(loss, begin > 0 ? 1 : 0), out(lse.alias_rows(begin, end)), part,
           labels.alias_rows(begin, end), args);
  });
  if (batch == 0) {
    bool several = is_one_of_several(needs_grad(x) || needs_grad(weight));
    counted = counted_rows(labels, options.ignore_index, wide.dtype, several);
    loss = div(loss, counted);
  }
  if (auto* node = record<LinearCrossEntropy>(loss, x, weight)) {
    bool keeps = options.rows == 0;
    node->args = args, node->rows = options.rows;
    node->save(kept_if(needs_grad(weight) || !keeps, x), kept_if(needs_grad(x) || !keeps, weight));
    node->save(labels, lse, counted, kept_if(keeps, logits));
  }
  return loss;
}

}  // namespace shardgrad
