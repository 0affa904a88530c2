#pragma once
// Losses beyond mse_loss and cross_entropy of autograd/ops.h, which includes this. They divide by a count as those do.

#include <optional>

#include <shardgrad/core/tensor.h>

namespace shardgrad {

enum class Reduction : uint8_t { mean, sum, none };
/// The mean divides by `count`, on several ranks that of the whole batch, else by what this part has. A sum needs none,
/// since ranks' gradients are added up. `none`: the loss of each element, or row.
struct LossOptions {
  std::optional<double> count = {};
  Reduction reduction = Reduction::mean;
};

/// (x - target)²
Tensor mse_loss(const Tensor& x, const Tensor& target, const LossOptions& options);
/// -t · log σ(x) - (1 - t) · log(1 - σ(x)), without overflow; targets within [0, 1]. `pos_weight`, broadcast to x,
/// multiplies the first term.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const LossOptions& options = {},
                                        const Tensor& pos_weight = Tensor());
/// |x - target|
Tensor l1_loss(const Tensor& x, const Tensor& target, const LossOptions& options = {});
/// (x - target)² / (2 beta) where |x - target| < beta, else |x - target| - beta / 2.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta = 1, const LossOptions& options = {});
/// delta times smooth_l1_loss with beta = delta.
Tensor huber_loss(const Tensor& x, const Tensor& target, double delta = 1, const LossOptions& options = {});
/// target · (log target - x), where x are logarithms of probabilities; 0 where the target is. PyTorch's batchmean is
/// the mean with the batch's number of samples as its count.
Tensor kl_div(const Tensor& x, const Tensor& target, const LossOptions& options = {});

struct ClassOptions {
  std::optional<double> count = {};  ///< of labels that count; with weights the sum of theirs
  Reduction reduction = Reduction::mean;
  int64_t ignore_index = -100;
  Tensor weight = {};          ///< (C): of each class
  double label_smoothing = 0;  ///< so much of the target is spread evenly over all classes
};
/// -log_probs[label] of rows (N, C), labels i64 (N).
Tensor nll_loss(const Tensor& log_probs, const Tensor& labels, const ClassOptions& options = {});
/// The same of log_softmax(logits), smoothed. Targets of logits' shape and dtype are probabilities of the classes
/// (ignore_index has no meaning there).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassOptions& options);

}  // namespace shardgrad
