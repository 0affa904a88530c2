#pragma once
// What the ranks of a run make sure of together. Called by every rank.

#include <cstdint>
#include <string>

#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::train {

/// Throws Error(input) on every rank unless all have the same `value`.
void check_same(dist::ProcessGroup& world, const char* what, uint64_t value);
/// `value` of all ranks together; `phase` is what the trace shows.
int64_t sum_over_ranks(dist::ProcessGroup& world, int64_t value, const char* phase);
/// Rank 0's text, on every rank.
std::string same_text(dist::ProcessGroup& world, const std::string& text);
/// Throws Error(input) on a rank that does not see the run's folder, in which it saves its part.
void check_folder_is_shared(dist::ProcessGroup& world, const std::string& folder);

/// Ranks learn of a request to stop (Control::stop_requested) at different times, so they agree on the step after which
/// they do.
class StopAgreement {
 public:
  explicit StopAgreement(dist::ProcessGroup& world) : world_(world) {}
  /// After every step, on every rank. True on all when one of them was asked. Ranks talk every few steps, about once a
  /// second: when is decided from all ranks' seconds, so that none waits for one that does not come.
  bool asked_to_stop(int64_t step, double seconds_per_step);

 private:
  dist::ProcessGroup& world_;
  int64_t next_ = 0;
};

}  // namespace shardgrad::train
