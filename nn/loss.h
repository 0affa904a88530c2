#pragma once
// Losses divide by a count that the caller gives: the number of elements or labels of the *global* batch. Each rank
// then holds its part of one sum; the sum over ranks is the loss of the whole batch, also where parts are uneven. In a
// single process the count may be left out, as in PyTorch; with several ranks a loss that is recorded for backward is
// refused without it.

#include <optional>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// Σ (x - target)² / count, one element; without a count, / x.numel().
struct MSELoss : Module {
  Tensor forward(const Tensor& x, const Tensor& target, std::optional<double> count = {}) {
    return mse_loss(x, target, count);
  }
};

/// Σ -log softmax(logits)[label] / count over rows whose label is not ignore_index; without a count, / their number.
/// logits: (N, C), labels: i64 (N).
class CrossEntropyLoss : public Module {
 public:
  explicit CrossEntropyLoss(int64_t ignore_index = -100) : ignore_index_(ignore_index) {}
  Tensor forward(const Tensor& logits, const Tensor& labels, std::optional<double> count = {}) {
    return cross_entropy(logits, labels, count, ignore_index_);
  }

 private:
  int64_t ignore_index_;
};

}  // namespace shardgrad::nn
