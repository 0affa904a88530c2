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

// Ranks add up their gradients: means of each rank's part would give gradients as many times too large as there are
// ranks. `part`: what this rank's part has, `whole`: what the batch has.
void check_count(const char* op, double count, bool recorded, const char* part, const char* whole) {
  SG_CHECK(count >= 0, op, ": count ", count, " is negative");
  int ranks = context().world_size();
  SG_CHECK(count > 0 || ranks == 1 || !recorded || !grad_enabled(), op, ": on ", ranks,
           " ranks a loss needs its count, because the ranks' gradients are added up: pass the number of ", whole,
           " of the whole batch, over all ranks (see data::Batch::global_count); where each rank trains by itself, of ",
           part);
}

// How many labels count, at least 1, as one element on the labels' device: the host need not read them.
Tensor counted_rows(const Tensor& labels, int64_t ignore_index, DType dtype) {
  Tensor ignored = full({1}, double(ignore_index), {DType::i64, labels.device()});
  return clamp(sum(cast(ne(labels, ignored), dtype)), 1, double(std::max<int64_t>(labels.numel(), 1)));
}

void check_cross_entropy(const Tensor& logits, const Tensor& labels, double count, int64_t classes) {
  check_floating("cross_entropy", logits);
  SG_CHECK(logits.ndim() == 2 && labels.ndim() == 1 && labels.size(0) == logits.size(0), "cross_entropy: logits ",
           logits.shape(), " and labels ", labels.shape(), " do not fit; they must be (N, classes) and (N)");
  SG_CHECK(labels.dtype() == DType::i64, "cross_entropy: labels must be i64, got ", labels, " for logits ",
           logits.shape(), "; convert them with .to(dtype)");
  SG_CHECK(labels.device() == logits.device(), "cross_entropy: logits ", logits.shape(), " are on ", logits.device(),
           ", labels ", labels.shape(), " on ", labels.device(), "; move one with .to(device)");
  SG_CHECK(classes >= 0 && classes <= logits.size(1), "cross_entropy: ", classes, " classes in logits ", logits.shape(),
           "; there can be as many as columns, or fewer, where the others are padding");
  check_count("cross_entropy", count, needs_grad(logits), "its own labels", "labels");
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, double count) {
  if (should_widen(x, target)) return mse_loss(widened(x), widened(target), count);
  check_same_kind("mse_loss", x, target);
  check_floating("mse_loss", x);
  SG_CHECK(x.shape() == target.shape(), "mse_loss: input ", x.shape(), " and target ", target.shape(),
           " must have the same shape");
  check_count("mse_loss", count, needs_grad(x) || needs_grad(target), "x, x.numel()", "elements");
  if (count == 0) count = double(std::max<int64_t>(x.numel(), 1));
  Tensor loss = empty({}, {sum_dtype(x.dtype()), x.device()});
  launch(kernels::mse, x, out(loss), x, target, 1 / count);
  if (auto* node = record<MseLoss>(loss, x, target)) {
    node->scale = 1 / count;
    node->save(x, target);
  }
  return loss;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double count, int64_t ignore_index, int64_t classes) {
  check_cross_entropy(logits, labels, count, classes);
  TensorOptions wide{sum_dtype(logits.dtype()), logits.device()};
  Tensor loss = empty({}, wide), lse = empty({logits.size(0)}, wide), rows;
  kernels::CrossEntropyArgs args{count > 0 ? 1 / count : 1.0, ignore_index, classes};
  launch(kernels::cross_entropy, logits, out(loss), out(lse), logits, labels, args);
  if (count == 0) {
    rows = counted_rows(labels, ignore_index, wide.dtype);
    loss = div(loss, rows);
  }
  if (auto* node = record<CrossEntropy>(loss, logits)) {
    node->args = args;
    node->save(logits, lse, labels, rows);
  }
  return loss;
}

}  // namespace shardgrad
