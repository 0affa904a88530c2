#pragma once
// The steps of a run, counted from 1, and after which of them something is due.

#include <cstdint>

#include <shardgrad/train/config.h>

namespace shardgrad::train {

class Course {
 public:
  /// `batches`: of an epoch.
  Course(const Config& config, int64_t batches)
      : batches_(batches),
        steps_(config.steps > 0 ? config.steps : batches * config.epochs),
        eval_every_(config.eval_every > 0 ? config.eval_every : batches),
        log_interval_(config.log_interval) {}

  int64_t steps() const { return steps_; }
  /// Both counted from 0.
  int64_t epoch_of(int64_t step) const { return (step - 1) / batches_; }
  int64_t batch_of(int64_t step) const { return (step - 1) % batches_; }
  bool ends_epoch(int64_t step) const { return step % batches_ == 0; }
  /// The weights are tested after the step.
  bool tests_after(int64_t step) const { return step == steps_ || step % eval_every_ == 0; }
  /// There is a line for it.
  bool reports_after(int64_t step) const { return tests_after(step) || ends_epoch(step) || step % log_interval_ == 0; }

 private:
  int64_t batches_, steps_, eval_every_, log_interval_;
};

}  // namespace shardgrad::train
