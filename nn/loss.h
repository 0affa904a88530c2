#pragma once
// Losses divide by a count that the caller gives: the number of elements or labels of the *global* batch. Each rank
// then holds its part of one sum; the sum over ranks is the loss of the whole batch, also where parts are uneven. In a
// single process the count may be left out, as in PyTorch; with several ranks a loss that is recorded for backward is
// refused without it.

#include <optional>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

namespace detail {
/// A call's count goes before the one that the module was made with.
template <class Options> Options with_count(Options options, std::optional<double> count) {
  if (count) options.count = count;
  return options;
}
}  // namespace detail

/// Σ (x - target)² / count, one element; without a count, / x.numel().
struct MSELoss : Module {
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return mse_loss(x, target, count);
  }
};

/// Σ -log softmax(logits)[label] / count over rows whose label is not ignore_index; without a count, / their number.
/// logits: (N, C), labels: i64 (N), or with options what cross_entropy takes. `weight` stays where it was made.
class CrossEntropyLoss : public Module {
 public:
  explicit CrossEntropyLoss(int64_t ignore_index = -100) : options_{.ignore_index = ignore_index} {}
  explicit CrossEntropyLoss(ClassOptions options) : options_(std::move(options)) {}
  Tensor forward(const Tensor& logits, const Tensor& labels, std::optional<double> count = {}) {
    return cross_entropy(logits, labels, detail::with_count(options_, count));
  }

 private:
  ClassOptions options_;
};

/// nll_loss of logarithms of probabilities (N, C) and labels (N).
class NLLLoss : public Module {
 public:
  explicit NLLLoss(ClassOptions options = {}) : options_(std::move(options)) {}
  Tensor forward(const Tensor& log_probs, const Tensor& labels, std::optional<double> count = {}) {
    return nll_loss(log_probs, labels, detail::with_count(options_, count));
  }

 private:
  ClassOptions options_;
};

/// binary_cross_entropy_with_logits; `pos_weight` stays where it was made.
class BCEWithLogitsLoss : public Module {
 public:
  explicit BCEWithLogitsLoss(LossOptions options = {}, Tensor pos_weight = Tensor())
      : options_(options), pos_weight_(std::move(pos_weight)) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return binary_cross_entropy_with_logits(x, target, detail::with_count(options_, count), pos_weight_);
  }

 private:
  LossOptions options_;
  Tensor pos_weight_;
};

class L1Loss : public Module {
 public:
  explicit L1Loss(LossOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return l1_loss(x, target, detail::with_count(options_, count));
  }

 private:
  LossOptions options_;
};

class SmoothL1Loss : public Module {
 public:
  explicit SmoothL1Loss(double beta = 1, LossOptions options = {}) : beta_(beta), options_(options) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return smooth_l1_loss(x, target, beta_, detail::with_count(options_, count));
  }

 private:
  double beta_;
  LossOptions options_;
};

class HuberLoss : public Module {
 public:
  explicit HuberLoss(double delta = 1, LossOptions options = {}) : delta_(delta), options_(options) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return huber_loss(x, target, delta_, detail::with_count(options_, count));
  }

 private:
  double delta_;
  LossOptions options_;
};

/// kl_div of logarithms of probabilities and probabilities.
class KLDivLoss : public Module {
 public:
  explicit KLDivLoss(LossOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return kl_div(x, target, detail::with_count(options_, count));
  }

 private:
  LossOptions options_;
};

}  // namespace shardgrad::nn
