#pragma once
// Dynamic loss scaling for f16, whose gradients would vanish below 2⁻²⁴: backward starts from scale · loss, the step
// divides by the scale, and a step in which a gradient overflowed is left out, everywhere:
//
//     optim::GradScaler scaler;
//     scaler.scale(loss).backward();
//     scaler.step(optimizer);                       // p and state untouched when a gradient is not finite
//     scaler.update();                              // the scale for the next step
//     optimizer.zero_grad();
//
// With clipping in between, on gradients that are still scaled:
//
//     if (scaler.finite(optimizer)) fsdp::clip_grad_norm(*sharded, max_norm * scaler.factor());
//
// Ranks that hold different gradients (shards, or none) decide together: pass how to sum a number over them.

#include <cstdint>
#include <functional>
#include <map>

#include <shardgrad/core/tensor.h>
#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {

/// PyTorch's names and defaults.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< good steps before the scale grows
  bool enabled = true;             ///< false: every call is a plain step
};

class GradScaler {
 public:
  /// This rank's number → its sum over all ranks that hold something of what the optimizer trains. Called the same
  /// number of times on every rank.
  using Sum = std::function<double(double mine, const Optimizer& optimizer)>;
  /// Throws Error(input) for options that make no sense.
  explicit GradScaler(GradScalerOptions options = {}, Sum sum_over_ranks = {});

  /// The loss times factor(), differentiably.
  Tensor scale(const Tensor& loss) const;
  bool enabled() const { return options_.enabled; }
  /// What gradients are multiplied by now.
  double factor() const { return options_.enabled ? factor_ : 1; }
  /// Whether every gradient that `optimizer` would use is finite, on all ranks. Looks once per step: waits for the
  /// device, and with a sum over ranks it is a collective that every rank joins, with gradients or without. Throws
  /// Error(input) for a parameter that is sharded, or a part of a larger one, when there is no sum over ranks.
  bool finite(const Optimizer& optimizer);
  /// Runs optimizer.step(grad_scale / factor()) if finite(optimizer); returns whether it did. Throws Error(input) when
  /// called twice for one optimizer without update().
  bool step(Optimizer& optimizer, double grad_scale = 1);
  /// The same with a number that a kernel has left (Optimizer::step), as
  /// optim::clip_scale(fsdp::grad_power(*sharded), max_norm * scaler.factor()): gradients are still scaled.
  bool step(Optimizer& optimizer, const Tensor& grad_scale);
  /// Divides the gradients by factor(), after finite(optimizer) has looked at them, so that they can be clipped; the
  /// step() after it takes them as they are. Those that overflowed, which step() leaves out, become zeros, which have a
  /// norm. Throws Error(input) for the second time without update(), and after
  /// step().
  void unscale(const Optimizer& optimizer);
  /// Ends a step: halves the factor after an overflow, doubles it after growth_interval good steps in a row. Throws
  /// Error(input) when no gradients were looked at.
  void update();

  struct State {
    double factor;
    int64_t good_steps;
  };
  State state() const { return {factor_, good_steps_}; }
  void load_state(State state);

 private:
  struct Seen {
    bool finite, stepped = false, unscaled = false;
  };
  template <class Step> bool step_by(Optimizer& optimizer, const Step& step);
  GradScalerOptions options_;
  Sum sum_;
  double factor_;
  int64_t good_steps_ = 0;
  std::map<const Optimizer*, Seen> seen_;  // since update()
};

}  // namespace shardgrad::optim
