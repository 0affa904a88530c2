#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

bool is_part_of_a_batch(const Tensor& each) { return needs_grad(each) && grad_enabled() && context().world_size() > 1; }

// `own`: what a mean divides by where no count is given, or 0.
Tensor reduce_loss(const char* op, const Tensor& each, std::optional<double> count, Reduction reduction,
                   const Tensor& own) {
  if (reduction == Reduction::none) return each;
  if (reduction == Reduction::sum) return sum(each);
  check_loss_count(op, count, needs_grad(each), "its own part", "elements or labels");
  return count.value_or(0) > 0 ? affine(sum(each), 1 / *count, 0) : div(sum(each), own);
}

void check_some(const char* op, const Tensor& each, const LossOptions& options) {
  SG_CHECK(options.count != 0.0 || each.numel() == 0, op, ": count 0, but there are losses of shape ", each.shape(),
           "; the count is that of the whole batch, over all ranks");
}

Tensor reduce_elements(const char* op, const Tensor& each, const LossOptions& options) {
  check_some(op, each, options);
  return reduce_loss(op, each, options.count, options.reduction,
                     number_beside(op, each, double(std::max<int64_t>(each.numel(), 1))));
}

struct Pair {
  Tensor x, target;
};
// What fits together; under autocast what it makes of it.
Pair checked(const char* op, const Tensor& x, const Tensor& target) {
  Pair pair{widened(x), widened(target)};
  check_same_kind(op, pair.x, pair.target);
  check_floating(op, pair.x);
  SG_CHECK(x.shape() == target.shape(), op, ": input ", x.shape(), " and target ", target.shape(),
           " must have the same shape");
  return pair;
}

// The loss depends on the size of the difference, so the target's gradient is the same kernel with the two exchanged.
struct HuberLoss final : Node {
  const char* name() const override { return "huber_loss"; }
  double scale = 1, delta = 1;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    const Tensor &x = saved(0), &target = saved(1);
    if (dx[0].wanted()) launch(kernels::huber_loss_backward, x, dx[0].write(), dy[0], x, target, scale, delta);
    if (dx[1].wanted()) launch(kernels::huber_loss_backward, x, dx[1].write(), dy[0], target, x, scale, delta);
  }
};

// scale · Σ huber(x - target), in one pass over both.
Tensor huber_sum(const Tensor& x, const Tensor& target, double scale, double delta) {
  Tensor loss = empty({}, {sum_dtype(x.dtype()), x.device()});
  launch(kernels::huber_loss, x, out(loss), x, target, scale, delta);
  if (auto* node = record<HuberLoss>(loss, x, target)) {
    node->scale = scale, node->delta = delta;
    node->save(x, target);
  }
  return loss;
}

Tensor reduced_huber(const char* op, const Pair& pair, double scale, double delta, const LossOptions& options) {
  const auto& [x, target] = pair;
  check_some(op, x, options);
  if (options.reduction == Reduction::sum) return huber_sum(x, target, scale, delta);
  if (options.reduction == Reduction::none) {
    Tensor each = huber(wide(x) - wide(target), delta);
    return scale == 1 ? each : affine(each, scale, 0);
  }
  check_loss_count(op, options.count, needs_grad(x) || needs_grad(target), "its own part", "elements");
  double count = options.count.value_or(0);
  return huber_sum(x, target, scale / (count > 0 ? count : double(std::max<int64_t>(x.numel(), 1))), delta);
}

struct Rows {
  Tensor counts, weights;  // whether a label is not ignored; its class's weight, 0 where it is ignored
  Tensor safe;             // the labels, 0 in the place of ignored ones
};
Rows rows_of_labels(const Tensor& log_probs, const Tensor& labels, const ClassOptions& options) {
  Rows rows{counted_labels(labels, options.ignore_index), {}, {}};
  rows.safe = where(rows.counts, labels, zeros({}, {DType::i64, labels.device()}));
  rows.weights = rows.counts.to(log_probs.dtype());
  if (options.weight.defined()) rows.weights = rows.weights * index_select(wide(options.weight), 0, rows.safe);
  return rows;
}

void check_rows(const char* op, const Tensor& x, const ClassOptions& options) {
  check_floating(op, x);
  SG_CHECK(x.ndim() == 2, op, ": rows are (N, classes), got ", x.shape());
  SG_CHECK(!options.weight.defined() || options.weight.shape() == Shape{x.size(1)}, op, ": the weights are (",
           x.size(1), "), got ", options.weight);
  SG_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, op, ": label_smoothing ",
           options.label_smoothing, " is not within [0, 1]");
}

void check_labels(const char* op, const Tensor& x, const Tensor& labels) {
  SG_CHECK(labels.dtype() == DType::i64 && labels.shape() == Shape{x.size(0)}, op, ": labels must be i64 (", x.size(0),
           "), or probabilities of the shape and dtype of ", x, ", got ", labels);
}

// Each row's loss of hard labels, times its weight; 0 where the label is ignored, whatever the row has.
Tensor hard(const Tensor& log_probs, const Rows& rows, const ClassOptions& options) {
  Tensor each = neg(gather(log_probs, 1, unsqueeze(rows.safe, 1)).squeeze(1));
  if (options.weight.defined()) each = each * rows.weights;
  double smoothing = options.label_smoothing;
  if (smoothing > 0) {
    Tensor all = options.weight.defined() ? log_probs * wide(options.weight) : log_probs;
    each = each * (1 - smoothing) - sum(all, 1) * (smoothing / double(log_probs.size(1)));
  }
  return where(rows.counts, each, number_beside("cross_entropy", each, 0));
}

Tensor soft(const Tensor& log_probs, const Tensor& target, const ClassOptions& options) {
  double smoothing = options.label_smoothing;
  Tensor wanted = wide(target) * (1 - smoothing) + smoothing / double(target.size(1));
  if (options.weight.defined()) wanted = wanted * wide(options.weight);
  return neg(sum(wanted * log_probs, 1));
}

// Where the count of the whole batch is 0 nothing may count: what does makes the loss infinite.
Tensor reduce_rows(const char* op, const Tensor& each, const Tensor& weights, const ClassOptions& options) {
  Tensor total = sum(weights), own;
  if (is_part_of_a_batch(each) || options.weight.defined()) {
    Tensor none = cast(logical_not(total), total.dtype());
    own = is_part_of_a_batch(each) ? none : total + none;
  } else {
    own = clamp(total, 1, double(weights.numel()) + 1);
  }
  return reduce_loss(op, each, options.count, options.reduction, own);
}

}  // namespace

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const LossOptions& options,
                                        const Tensor& pos_weight) {
  const char* op = "binary_cross_entropy_with_logits";
  Pair pair = checked(op, x, target);
  Tensor logit = wide(pair.x), t = wide(pair.target);
  Tensor positive = pos_weight.defined() ? t * wide(pos_weight) : t;
  // Two terms without a sign, so that nothing cancels where the loss is small.
  Tensor each = (1 - t) * softplus(logit) + positive * softplus(neg(logit));
  return reduce_elements(op, each, options);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, const LossOptions& options) {
  if (options.reduction == Reduction::mean) return mse_loss(x, target, options.count);
  Pair pair = checked("mse_loss", x, target);
  if (options.reduction == Reduction::sum) return mse_loss(pair.x, pair.target, 1.);
  return square(wide(pair.x) - wide(pair.target));
}

Tensor l1_loss(const Tensor& x, const Tensor& target, const LossOptions& options) {
  Pair pair = checked("l1_loss", x, target);
  return reduce_elements("l1_loss", abs(wide(pair.x) - wide(pair.target)), options);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta, const LossOptions& options) {
  Pair pair = checked("smooth_l1_loss", x, target);
  SG_CHECK(beta >= 0, "smooth_l1_loss: beta ", beta, " is negative");
  constexpr double kLeast = 1e-30;  // below, it differs from |x - target| by less than f32 could tell
  if (beta < kLeast) return l1_loss(pair.x, pair.target, options);
  return reduced_huber("smooth_l1_loss", pair, 1 / beta, beta, options);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, double delta, const LossOptions& options) {
  Pair pair = checked("huber_loss", x, target);
  SG_CHECK(delta > 0, "huber_loss: delta ", delta, " is not positive");
  return reduced_huber("huber_loss", pair, 1, delta, options);
}

Tensor kl_div(const Tensor& x, const Tensor& target, const LossOptions& options) {
  Pair pair = checked("kl_div", x, target);
  Tensor t = wide(pair.target), zero = zeros({}, {t.dtype(), t.device()});
  Tensor counts = t != 0, safe = where(counts, t, zero + 1);  // also NaN, which must not disappear
  return reduce_elements("kl_div", where(counts, t * log(safe), zero) - t * wide(pair.x), options);
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& labels, const ClassOptions& options) {
  check_rows("nll_loss", log_probs, options);
  check_labels("nll_loss", log_probs, labels);
  SG_CHECK(options.label_smoothing == 0, "nll_loss: smoothing is cross_entropy's");
  Rows rows = rows_of_labels(wide(log_probs), labels, options);
  return reduce_rows("nll_loss", hard(wide(log_probs), rows, options), rows.weights, options);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassOptions& options) {
  const char* op = "cross_entropy";
  check_rows(op, logits, options);
  if (is_floating(target.dtype())) {
    Pair pair = checked(op, logits, target);
    Tensor log_probs = log_softmax(wide(pair.x));
    return reduce_rows(op, soft(log_probs, pair.target, options),
                       ones({logits.size(0)}, {log_probs.dtype(), logits.device()}), options);
  }
  check_labels(op, logits, target);
  bool plain = !options.weight.defined() && options.label_smoothing == 0 && options.reduction == Reduction::mean;
  if (plain) return cross_entropy(logits, target, options.count, options.ignore_index);  // in one kernel
  Tensor log_probs = log_softmax(wide(logits));
  Rows rows = rows_of_labels(log_probs, target, options);
  return reduce_rows(op, hard(log_probs, rows, options), rows.weights, options);
}

}  // namespace shardgrad
