#pragma once
// What the ranks of a run make sure of together. Called by every rank.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/build_info.h>

namespace shardgrad::train {

/// Throws Error(input) on every rank unless all have the same `value`.
void check_same(dist::ProcessGroup& world, const char* what, uint64_t value);
/// The same for what the program was built from: other code or other libraries give other numbers.
void check_same_program(dist::ProcessGroup& world, const BuildInfo& build = build_info());
/// `value` of all ranks together; `phase` is what the trace shows.
int64_t sum_over_ranks(dist::ProcessGroup& world, int64_t value, const char* phase);
/// Throws Error(input) on a rank that does not see the run's folder, in which it saves its part.
void check_folder_is_shared(dist::ProcessGroup& world, const std::string& folder);

/// What a rank has to say after a step, and what all of them then know.
struct News {
  bool save = false;     ///< it is time to save; of one rank: all do
  bool writing = false;  ///< a checkpoint is being written; of one rank: not all are done
  bool trouble = false;  ///< something is not finite
};
struct Agreed : News {
  bool stop = false;  ///< one of them was asked to stop (Control::stop_requested)
};

/// Ranks learn of what happens at different times, so they agree on the step after which they act on it.
class Agreement {
 public:
  explicit Agreement(dist::ProcessGroup& world) : world_(world) {}
  /// Whether the ranks talk after this step: every few steps, about once a second. When is decided from all ranks'
  /// seconds, so that none waits for one that does not come.
  bool is_time(int64_t step) const { return step >= next_; }
  /// A collective.
  Agreed agree(int64_t step, double seconds_per_step, const News& mine);

 private:
  dist::ProcessGroup& world_;
  int64_t next_ = 0;
};

/// What ends work on all ranks at once that they were asked to end in, and that can wait.
struct AskedToEnd {};

/// Work on so many batches, such as an evaluation, between which the ranks hear of a request to end.
class Interruptible {
 public:
  /// `seconds`: a clock.
  Interruptible(dist::ProcessGroup& world, int64_t batches, std::function<double()> seconds)
      : talks_(world), batches_(batches), seconds_(std::move(seconds)), begin_(seconds_()) {}
  /// After each batch. A collective, now and then; throws AskedToEnd then.
  void done(int64_t batches);
  /// What that has sent.
  int64_t bytes_sent() const { return sent_; }

 private:
  Agreement talks_;
  int64_t batches_, sent_ = 0;
  std::function<double()> seconds_;
  double begin_;
};

}  // namespace shardgrad::train
