#pragma once
// Training steps as a CUDA graph (core/step_graph.h), for key `graph`: the host launches a whole step at once. Where a
// step is short, or a GPU fast, its launches are what it takes. The bits are those of train_step.
//
// A batch is copied into tensors that stay, and what a step leaves is copied out of such. Made as written are the first
// two steps, those that a trace records, and those whose batch has other counts or shapes than the captured one's, such
// as the last of an epoch: a loss divides by them, and the graph has the numbers of its own batch. Which batches these
// are is settled by what comes often, until a step is captured. By nothing else of the host may a loss differ from
// batch to batch, such as the number of the batch that training_step is told.

#include <optional>
#include <utility>
#include <vector>

#include <shardgrad/core/step_graph.h>
#include <shardgrad/train/step.h>

namespace shardgrad::train {

/// Throws Error(input) where `graph` is set and no step of this run could be captured. What its model and task do is
/// known when the first one is.
void check_graph(const Config& config, const dist::ProcessGroup& world);

class CapturedStep {
 public:
  /// Keeps `training`, and goes before what that speaks of.
  explicit CapturedStep(const Training& training);
  /// As train_step. Throws Error(input), and says that `graph` may be false, where the step cannot be captured, or is
  /// not any more what was captured.
  StepResult operator()(const data::Batch& batch, bool norm_wanted);
  bool is_captured() const { return graph_.is_captured(); }

 private:
  // What a step has of its batch on the host.
  struct Form {
    int64_t count = 0, global_count = 0, first = 0, global_ignored = 0;
    std::vector<std::pair<Shape, DType>> fields = {};
    bool operator==(const Form&) const = default;
  };
  static Form form_of(const data::Batch& batch);
  void settle_form(const Form& form);
  void take(const data::Batch& batch);
  Tensor queue();
  QueuedStep copied_out() const;

  Training training_;
  std::optional<data::Batch> batch_;  // in memory that stays
  Form form_, last_;                  // of batch_; of the last batch before a step was captured
  QueuedStep queued_;                 // by the last step that was captured, or made as if it were to be
  StepGraph graph_;
};

}  // namespace shardgrad::train
