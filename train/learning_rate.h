#pragma once
// The learning rate of each step of a run.

#include <cstdint>
#include <optional>
#include <string>

#include <shardgrad/train/config.h>
#include <shardgrad/train/evaluation.h>

namespace shardgrad::train {

class LearningRate {
 public:
  /// Of a run of `total_steps` with a new optimizer: by its own schedule, or by the config's.
  LearningRate(const Config& config, const Optimizers& optimizers, int64_t total_steps);

  int64_t total_steps() const { return total_steps_; }
  /// Of step `step`, counted from 0. Schedule plateau looks at the best score until then, which is the same on every
  /// rank; the others do not.
  double at(int64_t step, const std::optional<Best>& best) const;
  /// Says that the evaluation after step `step`, after which `best` is the best one, lowers the learning rate of the
  /// next step; empty when it does not, or there is none. `score`: the name of what is the best.
  std::string plateau_note(int64_t step, const std::string& score, const Best& best) const;

 private:
  int64_t total_steps_;
  double base_;
  optim::Schedule factor_;
  double drop_;  // of a plateau
  std::optional<int64_t> patience_;
};

}  // namespace shardgrad::train
