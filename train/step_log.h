#pragma once
// What metrics.jsonl says where every step has a line (log_steps). The losses stay where they were computed until the
// ranks talk anyway, and are then added up over the ranks, all in one.

#include <vector>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/callback.h>

namespace shardgrad::train {

class StepLog {
 public:
  /// After a step: its line but for the loss, of which these are this rank's (StepResult::losses).
  void add(Metrics line, const Tensor& losses);
  /// The weights were tested: of the last line, if there is one.
  void add_scores(const std::vector<Score>& scores, int64_t count);
  /// The lines since the last call, whole. A collective.
  std::vector<Metrics> take(dist::ProcessGroup& world);

 private:
  std::vector<Metrics> lines_;
  std::vector<Tensor> losses_;  // this rank's, of each line
};

}  // namespace shardgrad::train
