#pragma once
// Records some steps of a run (key trace_steps) on every rank: what ran when, and on rank 0 who owned how many bytes.
//
//     trace.begin(step);                      // before each step
//     …
//     trace.end(step);                        // and after it
//     if (trace.is_complete()) write(trace.gather());

#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/ledger_history.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/trace.h>

namespace shardgrad::train {

class StepTrace {
 public:
  /// Records `steps[0]` to `steps[1]`, counted from 1; nothing for {0, 0}. Bytes only where nobody else observes the
  /// ledger. Throws Error(input) for steps that are none, or more than 100.
  StepTrace(const std::vector<int64_t>& steps, dist::ProcessGroup& world);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;

  /// Whether a run that goes on after `step` had most of the steps recorded, of which some are left.
  bool is_mostly_done(int64_t step) const {
    return first_ <= step && step < last_ && step - first_ + 1 >= last_ - step;
  }
  /// Records nothing from here on.
  void leave_out() { first_ = last_ = 0; }
  void begin(int64_t step);
  /// Waits until the device has done the step.
  void end(int64_t step);
  /// Steps are recorded, and not gathered yet.
  bool has_steps() const { return !trace_.steps.empty(); }
  bool is_complete() const { return has_steps() && !is_recording_; }
  /// A collective. All ranks' steps as a file's text, on rank 0; they are forgotten then.
  std::string gather();

 private:
  void collect();
  void stop();
  int64_t first_, last_;
  dist::ProcessGroup& world_;
  bool is_recording_ = false, was_tracing_ = false;
  RankTrace trace_;
  std::optional<LedgerHistory> history_;
};

}  // namespace shardgrad::train
