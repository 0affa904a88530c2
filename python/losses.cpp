// Losses as functions.

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/nn/loss.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

using Maybe = std::optional<Tensor>;
using Count = std::optional<double>;

LossOptions loss_options(std::string_view reduction, Count count) {
  Reduction kind = reduction_of(reduction);
  SG_CHECK(!count || kind == Reduction::mean, "count divides the mean; with reduction '", reduction,
           "' it means nothing");
  return {count, kind};
}

Tensor mse_of(const Tensor& x, const Tensor& target, std::string_view reduction, Count count) {
  return mse_loss(x, target, loss_options(reduction, count));
}

Tensor kl_div_of(const Tensor& x, const Tensor& target, std::string_view reduction, Count count) {
  if (reduction != "batchmean") return kl_div(x, target, loss_options(reduction, count));
  return nn::KLDivLoss({}, true).forward(x, target, count);
}

// Losses of elements.
void bind_element_losses(nb::module_& m) {
  auto def = [&](const char* name, auto of, const char* doc) {
    m.def(
        name,
        [of](const Tensor& x, const Tensor& target, std::string_view reduction, Count count) {
          if constexpr (requires { of(x, target, reduction, count); })
            return of(x, target, reduction, count);
          else
            return of(x, target, loss_options(reduction, count));
        },
        "x"_a, "target"_a, "reduction"_a = "mean", "count"_a = nb::none(), Waits(), doc);
  };
  def("mse_loss", mse_of, "(x - target)²");
  def("l1_loss", l1_loss, "The size of x - target.");
  def("kl_div", kl_div_of,
      "target · (log target - x), x logarithms of probabilities. batchmean: the sum over the samples' number.");
  m.def(
      "smooth_l1_loss",
      [](const Tensor& x, const Tensor& target, std::string_view reduction, double beta, Count count) {
        return smooth_l1_loss(x, target, beta, loss_options(reduction, count));
      },
      "x"_a, "target"_a, "reduction"_a = "mean", "beta"_a = 1., "count"_a = nb::none(), Waits(),
      "Of d, the size of x - target: d² / (2 beta) where d < beta, else d - beta / 2.");
  m.def(
      "huber_loss",
      [](const Tensor& x, const Tensor& target, std::string_view reduction, double delta, Count count) {
        return huber_loss(x, target, delta, loss_options(reduction, count));
      },
      "x"_a, "target"_a, "reduction"_a = "mean", "delta"_a = 1., "count"_a = nb::none(), Waits(),
      "Of d, the size of x - target: d² / 2 where d < delta, else delta · (d - delta / 2).");
  m.def(
      "binary_cross_entropy_with_logits",
      [](const Tensor& x, const Tensor& target, std::string_view reduction, const Maybe& pos_weight, Count count) {
        return binary_cross_entropy_with_logits(x, target, loss_options(reduction, count), or_undefined(pos_weight));
      },
      "x"_a, "target"_a, "reduction"_a = "mean", "pos_weight"_a = nb::none(), "count"_a = nb::none(), Waits(),
      "-t · log σ(x) - (1 - t) · log(1 - σ(x))");
}

// What losses that are written in Python end with.
void bind_reduced_loss(nb::module_& m) {
  m.def(
      "_reduced_loss",
      [](const std::string& op, const Tensor& each, std::string_view reduction, Count count) {
        Reduction kind = loss_options(reduction, count).reduction;
        if (kind == Reduction::none) return each;
        if (kind == Reduction::sum) return sum(each);
        SG_CHECK(count != 0.0 || each.numel() == 0, op, ": count 0, but there are losses of shape ", each.shape(),
                 "; the count is that of the whole batch, over all ranks");
        check_loss_count(op.c_str(), count, needs_grad(each), "its own part", "elements");
        return sum(each) / (each.numel() == 0 ? 1 : count.value_or(double(each.numel())));
      },
      "op"_a, "losses"_a, "reduction"_a, "count"_a.none(), Waits());
}

}  // namespace

void bind_losses(nb::module_& m) {
  m.def(
      "_check_reduction", [](std::string_view reduction) { reduction_of(reduction); }, "reduction"_a);
  bind_element_losses(m);
  bind_reduced_loss(m);
  m.def(
      "cross_entropy",
      [](const Tensor& logits, const Tensor& target, const Maybe& weight, int64_t ignore_index,
         std::string_view reduction, double label_smoothing, Count count) {
        Reduction kind = loss_options(reduction, count).reduction;
        bool plain = kind == Reduction::mean && !weight && label_smoothing == 0 && !is_floating(target.dtype());
        if (plain) return cross_entropy(logits, target, count, ignore_index);
        return cross_entropy(logits, target, {count, kind, ignore_index, or_undefined(weight), label_smoothing});
      },
      "logits"_a, "target"_a, "weight"_a = nb::none(), "ignore_index"_a = -100, "reduction"_a = "mean",
      "label_smoothing"_a = 0., "count"_a = nb::none(), Waits(),
      "-log softmax(logits)[label] of rows (N, C); labels int64 (N), or probabilities (N, C).");
  m.def(
      "nll_loss",
      [](const Tensor& log_probs, const Tensor& target, const Maybe& weight, int64_t ignore_index,
         std::string_view reduction, Count count) {
        return nll_loss(log_probs, target,
                        {count, loss_options(reduction, count).reduction, ignore_index, or_undefined(weight), 0});
      },
      "log_probs"_a, "target"_a, "weight"_a = nb::none(), "ignore_index"_a = -100, "reduction"_a = "mean",
      "count"_a = nb::none(), Waits(), "-log_probs[label]");
  m.def(
      "linear_cross_entropy",
      [](const Tensor& x, const Tensor& weight, const Tensor& labels, Count count, int64_t ignore_index,
         int64_t classes, int64_t rows) {
        return linear_cross_entropy(x, weight, labels, {count, ignore_index, classes, rows});
      },
      "x"_a, "weight"_a, "labels"_a, nb::kw_only(), "count"_a = nb::none(), "ignore_index"_a = -100, "classes"_a = 0,
      "rows"_a = 0, Waits(), "cross_entropy(linear(x, weight), labels) with the logits in memory once.");
}

}  // namespace shardgrad::python
