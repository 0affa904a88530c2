#pragma once
// How good a model is on samples that it was not trained on.

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include <shardgrad/core/ledger.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/task.h>

namespace shardgrad::Category {
inline constexpr Kind evaluation = named<"evaluation">;  ///< what a task makes of test samples
}

namespace shardgrad::train {

struct Evaluation {
  std::vector<Score> scores;
  int64_t count = 0;  ///< samples
};

inline constexpr int64_t kAllBatches = std::numeric_limits<int64_t>::max();

/// Over every sample that the ranks' loaders have together, each once, or those of the first `most` batches; forward
/// under an Autocast of `dtype`. Modules are in evaluation mode, and afterwards in those that they were in. A
/// collective; every rank gets the same. `tell` is given the number of batches after each of them.
Evaluation evaluate(Task& task, data::DataLoader& samples, dist::ProcessGroup& world, std::optional<DType> dtype,
                    const std::function<void(int64_t batches)>& tell = {}, int64_t most = kAllBatches);

/// Adds what the task makes of this rank's parts of `count` batches, of which `next` gives each; `sums` has one for
/// each grain of a batch, or without grains one. What evaluate does, but that the ranks do not talk.
void evaluate_batches(Task& task, int64_t count, const std::function<data::Batch(int64_t number)>& next,
                      std::optional<DType> dtype, std::vector<Sums>& sums);

/// The best score until now, the task's first.
struct Best {
  double value = 0;
  int64_t worse = 0;     ///< evaluations since then
  int64_t plateaus = 0;  ///< in the whole run: how often `patience` evaluations went by without a better one
  int64_t step = 0;      ///< after which it was found; 0: no score was finite
};
/// Whether `score`, found after `step`, is better than the best one: that and everything that is known of it is brought
/// up to date. A score that is not finite is never better.
bool is_better(const Score& score, int64_t step, int64_t patience, std::optional<Best>& best);

}  // namespace shardgrad::train
