#pragma once
// Where a training loop is. Random numbers are a function of it, so that recompute and any number of ranks draw the
// same, and a run that goes on from a checkpoint draws what it would have drawn:
//
//     sg::progress() = {step, first_sample};     // before each forward pass

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include <shardgrad/core/context.h>

namespace shardgrad {

/// How often each random stream was drawn from in this pass. Threads may draw at once: which of them gets which numbers
/// of a stream that they share is then left to chance.
class Draws {
 public:
  Draws() = default;
  Draws(const Draws& other) : counts_(other.counts()) {}
  Draws& operator=(const Draws& other);

  /// How often it was drawn from before this draw.
  uint64_t next(uint64_t stream);
  std::unordered_map<uint64_t, uint64_t> counts() const;
  void clear();

 private:
  void set(std::unordered_map<uint64_t, uint64_t> counts);
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, uint64_t> counts_;
};

struct Progress {
  uint64_t step = 0;
  /// Place in the global batch of this rank's first sample. -1, nobody has said: dropout draws a mask of its own on
  /// every rank, which no other number of ranks would.
  int64_t first_sample = -1;
  Draws draws = {};
  /// The stream of the next draw from `stream`: one for each step and draw.
  uint64_t next_stream(uint64_t stream);
};

namespace detail {
/// Where the calling thread runs a recomputed region again: as it was in the first run. Null elsewhere.
inline constinit thread_local ThreadSetting<Progress*> own_progress{nullptr};
}  // namespace detail

/// The current context's. All threads of a rank have one, but for one that runs a recomputed region again. In a step
/// that is captured (core/step_graph.h) a draw is refused where `step` is another than before it: each replay has the
/// `step` that it finds.
Progress& progress();

namespace detail {
/// In a step that is captured, for a draw: refuses it as progress() says, and each replay that finds another
/// first_sample, unless the step has set its own.
void check_captured_draw();
}  // namespace detail

}  // namespace shardgrad
