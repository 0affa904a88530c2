#pragma once
// Counts what a run does: the steps since the last progress line, and since this process began.

#include <cstdint>
#include <optional>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/callback.h>
#include <shardgrad/train/step.h>

namespace shardgrad::train {

/// What training on one sample takes; 0: unknown.
struct Work {
  double tokens = 0;
  double flops = 0;  ///< floating-point operations (FlopCount of autograd/launch.h)
};

class Meter {
 public:
  /// The run stands after `step`, at which `samples` were seen, each of which takes `work`.
  Meter(int64_t step, int64_t samples, const Work& work = {});
  void add(const StepResult& step, int64_t samples, double seconds);
  /// Of the steps since the last call; fills in what is counted here. A collective.
  void fill(Metrics& metrics, dist::ProcessGroup& world);
  /// The same of the last step alone, but for the loss.
  Metrics of_last_step(Metrics metrics) const;

  int64_t step() const { return now_.step; }
  int64_t samples() const { return now_.samples; }
  /// Steps that no line has told of.
  bool has_news() const { return now_.step > reported_.step; }
  /// 0 before the first step of this process; so are the rates below.
  double seconds_per_step() const { return steps_done() > 0 ? now_.seconds / double(steps_done()) : 0; }
  /// By this process.
  int64_t steps_done() const { return now_.step - begin_.step; }
  int64_t samples_done() const { return now_.samples - begin_.samples; }
  int64_t skipped_in_a_row() const { return skipped_in_a_row_; }
  double seconds() const { return now_.seconds; }
  double samples_per_s() const { return steps_done() > 0 ? double(samples_done()) / seconds() : 0; }
  /// 0 where the task does not say.
  double tokens_per_s() const { return work_.tokens * samples_per_s(); }
  /// The most that a step sent: less where evaluation had gathered for it (zero1).
  /// Nothing after one step alone, which did not know yet what it need not gather again.
  std::optional<int64_t> step_bytes() const { return steps_done() > 1 ? std::optional(step_bytes_) : std::nullopt; }

 private:
  struct Mark {
    int64_t step, samples;
    double seconds = 0;
    int64_t skipped = 0;  // steps
  };
  void count(Metrics& metrics, const Mark& since) const;
  Mark begin_, reported_, before_, now_;  // before_: the last step
  Work work_;
  int64_t step_bytes_ = 0, skipped_in_a_row_ = 0;
  Tensor loss_sum_;  // of StepResult::losses since the last line
};

}  // namespace shardgrad::train
