#pragma once
// Averages of a model's parameters over its training, which often do better than the last ones.
//
//     optim::EMA average(model->named_parameters(), 0.999);
//     for (…) { loss.backward(); optimizer.step(); average.update(); optimizer.zero_grad(); }
//     average.swap();                  // the model computes, and is saved, with the averages
//     evaluate(model);
//     average.swap();                  // and goes on training where it was

#include <memory>
#include <vector>

#include <shardgrad/autograd/parameter.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
class GradSink;
}

namespace shardgrad::optim {

/// An exponential moving average of every parameter, in its dtype, as PyTorch's get_ema_multi_avg_fn:
///
///     average = p                                   at the first update
///     average = average + (1 - decay) · (p - average)
///
/// Of a sharded model each rank keeps the average of its own part, and nothing is sent. Buffers are not averaged. To go
/// on from checkpoints of the model and of its average: load the average's, update once, then load the model's.
class EMA {
 public:
  /// Throws Error(input) for a decay outside of [0, 1) and parameters of 16 bits.
  explicit EMA(std::vector<NamedParameter> parameters, double decay = 0.999);
  EMA(const EMA&) = delete;
  EMA& operator=(const EMA&) = delete;

  /// After a step. Where memory ends it has averaged nothing, and may be repeated. Throws Error(input) while the
  /// averages are in the model, and where a parameter was sharded, or went to another device or dtype, since. In a
  /// captured step (core/step_graph.h) it must not be the first, and this object stays as long as the step is called.
  void update();
  /// Parameters and averages exchange their values; on all ranks. Takes memory for a copy of this rank's until it
  /// returns. Throws Error(input) before the first update, in a scope of fsdp::SummonFullParams, and as update, having
  /// changed nothing.
  void swap();
  /// Whether the averages are in the model.
  bool swapped() const { return swapped_; }

 private:
  // One range of a parameter that this rank updates.
  struct Piece {
    Tensor values, copy;
    size_t index, part;
  };
  std::vector<Piece> pieces() const;
  void repeat_in_replays(std::vector<Piece> pieces) const;

  std::vector<NamedParameter> parameters_;
  std::vector<GradSink*> owners_;
  std::vector<std::vector<Tensor>> averages_;  // of each parameter's ranges; empty before the first update
  double decay_;
  bool begun_ = false, swapped_ = false;
  const std::shared_ptr<EMA> self_{this, [](EMA*) {}};  // while it lives, for captured steps
};

}  // namespace shardgrad::optim
