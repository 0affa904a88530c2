#pragma once
// Finds the step at which a run stops making sense. Losses and gradients are looked at on the device, step by step, and
// read when the ranks talk to each other anyway, so a step waits for nothing. That is a few steps later; what is found
// is still told of the step where it began:
//
//     step 137: the loss of rank 1 is not finite; the first gradient that is not is that of unit 'layer2'

#include <optional>
#include <string>
#include <vector>

#include <shardgrad/fsdp/finite.h>

namespace shardgrad::train {

class FiniteWatch {
 public:
  explicit FiniteWatch(fsdp::Sharded& sharded) : sharded_(sharded) {}
  /// What there is to see of a step: its loss, and of each unit the largest |g| in pieces, end to end.
  struct Look {
    std::vector<Tensor> numbers;                         ///< f64, joined where neighbours are on one device
    std::vector<std::pair<std::string, int64_t>> units;  ///< and how many pieces they have
  };
  /// Queued after a step's update, which has waited for the gradients, and before they are zeroed. `loss`: this rank's
  /// part.
  Look look(const Tensor& loss) const;
  /// It is of step `step` (from 1).
  void keep(int64_t step, Look look);
  /// Reads what was queued since the last time. True when this rank has found something, now or before.
  bool found();
  /// A collective, for all ranks when one has found something: what was first, in a sentence.
  std::string explain() const;

 private:
  struct Step {
    int64_t number;
    Look look;
  };
  struct Finding {
    int64_t step;
    bool loss;
    std::string unit;  // empty: all gradients are finite
  };
  static std::optional<Finding> look_at(const Step& step);

  fsdp::Sharded& sharded_;
  std::vector<Step> steps_;  // that were not read
  std::optional<Finding> finding_;
};

}  // namespace shardgrad::train
