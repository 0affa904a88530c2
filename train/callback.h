#pragma once
// What happens in a run, for reports, stopping and whoever wants to know. Every rank calls its callbacks at the same
// steps, in the order of their registration, and each may run collectives:
//
//     struct Tell : train::Callback {
//       void on_eval(const train::Evaluated& e) override { log << e.step << " " << e.scores[0].value << "\n"; }
//     };
//     registry.add_callback([](const train::Config&, dist::ProcessGroup&) { return std::make_unique<Tell>(); });

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/tensor.h>
#include <shardgrad/train/task.h>

namespace shardgrad::train {

struct Stepped {
  int64_t step, total_steps;  ///< step: of the whole run, from 1
  int64_t samples;            ///< seen so far, by all ranks
  double lr;
  const Tensor& loss;               ///< this rank's part of the batch's
  std::optional<double> grad_norm;  ///< at progress lines; of every step that clips on the CPU, or with log_steps
  double tokens_per_sample = 0;     ///< the task's
};

/// What a progress line says, and a line of metrics.jsonl, where what is unknown is null.
struct Metrics {
  int64_t step = 0, epoch = 0, samples = 0;  ///< samples: seen so far in the whole run
  double loss = 0;                           ///< mean over the steps since the last line
  std::vector<Score> scores{};               ///< of these weights, where they were tested; else not numbers
  int64_t test_count = 0;                    ///< samples they were tested on
  double lr = 0;
  std::optional<double> grad_norm{};
  int64_t skipped_steps = 0;  ///< of those since the last line: loss scaling left them out
  double seconds = 0;         ///< that the steps since the last line took; a GPU may be behind
  double samples_per_s = 0;
  double tokens_per_s = 0;  ///< of all ranks; 0 where the task does not say (Task::tokens_per_sample)
  double flops_per_s = 0;   ///< of all ranks, as the plan counts them: of products and attention
  int64_t peak_bytes = 0;   ///< this rank's peak in the ledger
  double eta_seconds = 0;
  bool epoch_done = false;  ///< or these weights were tested: a line that stays
};

struct Evaluated {
  int64_t step;
  const std::vector<Score>& scores;
  bool best;      ///< the first score is the best until now
  int64_t worse;  ///< evaluations since the best one
};

struct Saved {
  int64_t step;
  std::string folder;
  std::string hash;  ///< of parameters, buffers and optimizer state
};

struct Result {
  /// Over every test sample; not numbers of a run that was stopped between evaluations, or in one.
  std::vector<Score> scores;
  int64_t steps = 0, total_steps = 0;  ///< done by the whole run, and planned
  double seconds = 0;
  bool stopped = false;  ///< saved and ended early because somebody asked for it (Control::stop_requested)
  std::string folder;    ///< of the run
  /// That a step sent, not known of one step alone, and was to send; predicted on rank 0 only.
  std::optional<int64_t> step_bytes{};
  int64_t predicted_step_bytes = 0;
};

class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_step(const Stepped&) {}
  virtual void on_metrics(const Metrics&) {}
  /// A line for the files: what on_metrics is about to tell, or, with log_steps, of each step since then.
  virtual void on_logged(const Metrics&) {}
  virtual void on_eval(const Evaluated&) {}
  virtual void on_save(const Saved&) {}
  virtual void on_end(const Result&) {}
  /// Why the run is to end here; empty: it goes on. Asked after on_eval. When one rank has a reason, the run ends on
  /// all as if it had reached its last step. What is no UTF-8 in it is shown as U+FFFD.
  virtual std::string reason_to_end() { return {}; }
};

}  // namespace shardgrad::train
