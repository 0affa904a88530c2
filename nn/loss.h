#pragma once
// Losses divide by a count that the caller gives: the number of elements or labels of the *global* batch. Each rank
// then holds its part of one sum; the sum over ranks is the loss of the whole batch, also where parts are uneven. In a
// single process the count may be left out, as in PyTorch; with several ranks a loss that is recorded for backward is
// refused without it.

#include <optional>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// What losses with options share.
template <class Options> class LossWith : public Module {
 protected:
  explicit LossWith(Options options) : options_(std::move(options)) {}
  /// The options; a call's count goes before theirs.
  Options with(std::optional<double> count) const {
    Options options = options_;
    if (count) options.count = count;
    return options;
  }

 private:
  Options options_;
};

/// Σ (x - target)² / count, one element; without a count, / x.numel().
class MSELoss : public LossWith<LossOptions> {
 public:
  explicit MSELoss(LossOptions options = {}) : LossWith(options) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return mse_loss(x, target, with(count));
  }
};

/// Σ -log softmax(logits)[label] / count over rows whose label is not ignore_index; without a count, / their number.
/// logits: (N, C), labels: i64 (N), or with options what cross_entropy takes. `weight` stays where it was made.
class CrossEntropyLoss : public LossWith<ClassOptions> {
 public:
  explicit CrossEntropyLoss(int64_t ignore_index = -100) : LossWith({.ignore_index = ignore_index}) {}
  explicit CrossEntropyLoss(ClassOptions options) : LossWith(std::move(options)) {}
  Tensor forward(const Tensor& logits, const Tensor& labels, std::optional<double> count = {}) {
    return cross_entropy(logits, labels, with(count));
  }
};

/// nll_loss of logarithms of probabilities (N, C) and labels (N).
class NLLLoss : public LossWith<ClassOptions> {
 public:
  explicit NLLLoss(ClassOptions options = {}) : LossWith(std::move(options)) {}
  Tensor forward(const Tensor& log_probs, const Tensor& labels, std::optional<double> count = {}) {
    return nll_loss(log_probs, labels, with(count));
  }
};

/// binary_cross_entropy_with_logits; `pos_weight` stays where it was made.
class BCEWithLogitsLoss : public LossWith<LossOptions> {
 public:
  explicit BCEWithLogitsLoss(LossOptions options = {}, Tensor pos_weight = Tensor())
      : LossWith(options), pos_weight_(std::move(pos_weight)) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return binary_cross_entropy_with_logits(x, target, with(count), pos_weight_);
  }

 private:
  Tensor pos_weight_;
};

class L1Loss : public LossWith<LossOptions> {
 public:
  explicit L1Loss(LossOptions options = {}) : LossWith(options) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return l1_loss(x, target, with(count));
  }
};

class SmoothL1Loss : public LossWith<LossOptions> {
 public:
  explicit SmoothL1Loss(double beta = 1, LossOptions options = {}) : LossWith(options), beta_(beta) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return smooth_l1_loss(x, target, beta_, with(count));
  }

 private:
  double beta_;
};

class HuberLoss : public LossWith<LossOptions> {
 public:
  explicit HuberLoss(double delta = 1, LossOptions options = {}) : LossWith(options), delta_(delta) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return huber_loss(x, target, delta_, with(count));
  }

 private:
  double delta_;
};

/// kl_div of logarithms of probabilities and probabilities. `batchmean`: without a count, the sum over the number of
/// samples.
class KLDivLoss : public LossWith<LossOptions> {
 public:
  explicit KLDivLoss(LossOptions options = {}, bool batchmean = false) : LossWith(options), batchmean_(batchmean) {}
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    LossOptions options = with(count);
    SG_CHECK(!batchmean_ || (x.ndim() > 0 && x.size(0) > 0), "kl_div: ", x.shape(),
             " has no samples to take the mean of");
    Tensor loss = kl_div(x, target, options);  // which on ranks wants the count
    return batchmean_ && !options.count ? loss * (double(x.numel()) / double(x.size(0))) : loss;
  }

 private:
  bool batchmean_;
};

}  // namespace shardgrad::nn
