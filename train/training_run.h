#pragma once
// One run of train() (train/trainer.h) on one rank: what its parts share, and what comes between them. What happens at
// its begin and the loop of its steps are in train/trainer.cpp.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/agreement.h>
#include <shardgrad/train/callbacks.h>
#include <shardgrad/train/captured_step.h>
#include <shardgrad/train/course.h>
#include <shardgrad/train/evaluation.h>
#include <shardgrad/train/learning_rate.h>
#include <shardgrad/train/meter.h>
#include <shardgrad/train/run_report.h>
#include <shardgrad/train/saver.h>
#include <shardgrad/train/seconds.h>
#include <shardgrad/train/step_log.h>
#include <shardgrad/train/step_trace.h>
#include <shardgrad/train/ticker.h>
#include <shardgrad/train/trainer.h>
#include <shardgrad/train/waiting_line.h>

namespace shardgrad::train {

class TrainingRun {
 public:
  TrainingRun(const Config& config, dist::ProcessGroup& world, std::ostream& out, const Terminal& terminal);
  Result run();

 private:
  void introduce();
  void begin();
  void step();
  Training training();
  StepResult make_step(const data::Batch& batch, bool norm_wanted);
  bool evaluate_all();
  bool test();
  void take_up_test();
  void report();
  void tell_line();
  void log_steps();
  void agree(bool now);
  bool wants_to_end();
  Result stop();
  Result stop_in_test();
  void save_at_end(const char* how);
  Result save_and_end();
  Result finish();
  Result end(bool stopped);
  void keep_trace();
  void write_trace();
  void write_records();
  Reached reached() const;
  Config as_written() const;
  void say(const std::string& line) {
    if (report_ && !line.empty()) report_->say(line);
  }
  void write_about(const Result* end);

  bool is_done() const { return meter_->step() == course_.steps(); }
  bool is_patience_over() const { return config_.early_stop > 0 && best_ && best_->worse >= config_.early_stop; }
  // On a clock that stands while this process does.
  double running_seconds() const;

  const Config& config_;
  dist::ProcessGroup& world_;
  Clock::time_point begun_at_;
  std::optional<WaitingLine> waiting_;  // until there is a report
  data::Splits data_;
  data::DataLoader train_, test_;
  Course course_;
  uint64_t fingerprint_, test_fingerprint_;  // of the samples
  fsdp::Plan predicted_;                     // rank 0's
  RunReport* report_ = nullptr;
  std::optional<Callbacks> callbacks_;
  std::optional<Ticker> ticker_;
  std::string init_from_, folder_;  // where its first weights are; of the run
  std::unique_ptr<Task> task_;
  std::shared_ptr<fsdp::Sharded> sharded_;
  Optimizers optimizers_;
  std::optional<LearningRate> rate_;
  optim::GradScaler scaler_;
  Agreement agreement_;
  std::optional<Saver> saver_;
  std::optional<FiniteWatch> watch_;
  std::optional<CapturedStep> captured_;
  bool ever_captured_ = false;
  std::optional<Agreed> agreed_;  // after the last step, where the ranks have talked
  std::optional<Best> best_;
  bool is_best_ = false;  // of the last step's weights
  std::optional<Meter> meter_;
  StepTrace trace_;
  StepLog step_log_;
  int64_t evaluation_bytes_ = 0;
  Metrics metrics_;
  std::string pending_;   // the line of the last step, whose evaluation was left (Reached::pending)
  bool took_up_ = false;  // it was made where this process began
  std::string ended_;     // why, where a callback did it
  bool told_not_finite_ = false;
};

}  // namespace shardgrad::train
