#pragma once
// One rank's end of the control channel, which runs beside the data path on host memory. It says where this rank is
// (enter, leave), reports its failure (fail), and ends its waits when any rank has failed (check). A monitor
// (dist/watch/monitor.h) watches the other ranks through it.

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/watch/control_page.h>
#include <shardgrad/dist/watch/deadlock.h>
#include <shardgrad/dist/watch/suspension.h>

namespace shardgrad::dist {

/// A lane's collective as one of its ranks sees it.
struct LaneView {
  bool waiting = false;   ///< this rank is in a collective
  Place place;            ///< which one
  bool diverged = false;  ///< a member is in another collective, or will never come
  bool left = false;      ///< a member has left by an exception, before this collective or within it
  bool speaker = false;   ///< this rank is the first of those that wait
  std::vector<int> late;  ///< members that have not come yet
};

class Control {
 public:
  /// Uses the calling thread's context: the job's failure aborts it.
  Control(ControlPage page, int rank);
  Control(const Control&) = delete;

  int rank() const { return rank_; }
  int size() const { return page_.ranks(); }
  const ControlPage& page() const { return page_; }

  /// A group of these global ranks begins and ends. Returns the lane for the calls below.
  int open_lane(uint64_t group, std::vector<int> members);
  void close_lane(int lane, Closed how);
  /// The calling thread makes the group's calls from now on; `sequence` is the last one made.
  void call(int lane, uint64_t sequence);
  /// While it lives, the calling thread waits for a collective of the lane.
  class Waiting {
   public:
    Waiting(Control& control, int lane, uint64_t sequence);
    ~Waiting() { blocked_.compare_exchange_strong(word_, 0); }
    Waiting(const Waiting&) = delete;

   private:
    std::atomic<uint64_t>& blocked_;
    uint64_t word_;
  };
  /// This rank is in a collective from now on, or has finished it.
  void enter(int lane, const Place& place) { my_lane(lane).place.store(place); }
  void leave(int lane, uint64_t sequence) { my_lane(lane).finished.store(sequence, std::memory_order_release); }

  /// Throws when the job has failed: this rank's own error, or Error(rank_failed) with the cause.
  void check() {
    if (page_.has_cause()) [[unlikely]]
      context_.abort(cause_error());
    context_.check_abort();
  }
  /// Reports that this rank fails with `error`, and ends its waits. The job's first failure becomes its cause.
  void fail(std::exception_ptr error) noexcept;
  /// Makes `sentence` the cause unless there is one, and ends this rank's waits with the cause.
  void end_job(const std::string& sentence, int code = int(ErrorKind::rank_failed)) noexcept;
  /// This rank's program is over without a failure.
  void finish();
  /// Ends the job because ranks are in different collectives of this lane's group, and throws.
  [[noreturn]] void throw_diverged(int lane);
  /// Somebody asked the program to save and end, by a signal; see Job::stop_requested.
  void request_stop() { stop_.store(true, std::memory_order_release); }
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }
  /// The monitor is awake, as Suspension::note_beat.
  bool note_beat(Suspension::Clock::time_point now, Suspension::Clock::duration beat, Suspension::Clock::duration gap) {
    return suspension_.note_beat(now, beat, gap);
  }
  /// Seconds that this process stood still until now: who tells rates leaves them out.
  double suspended_seconds() const { return suspension_.seconds(); }

  /// Whether a member of the lane's group, by its place in the group, is a process that is dead or stopped, now that
  /// the job has failed: what it was doing does not end.
  bool is_lost(int lane, int member) const;

  /// What this rank sees of one of its groups.
  LaneView look(int lane) const;
  /// The merged sentence on ranks that have diverged.
  std::string divergence(int lane) const;
  /// The merged sentence on ranks that wait for each other; see dist/watch/deadlock.h.
  std::string deadlock(const std::vector<Stuck>& cycle) const;
  /// Where each member of the lane's group is: "ranks 0 and 2 in all_reduce #6 …; rank 1 computing, last in …". Where
  /// that is too long, most ranks are "elsewhere": where few are is said, since who is sought is mostly alone.
  std::string whereabouts(int lane) const;
  /// Where a rank is, in `group`, or in any group for 0: "in all_reduce #6 …", "computing, last in …".
  std::string whereabouts_of(int rank, uint64_t group = 0) const;

 private:
  using Members = std::shared_ptr<const std::vector<int>>;
  Lane& my_lane(int lane) const { return page_.row(rank_).lanes[lane]; }
  Members members(int lane) const;
  std::exception_ptr cause_error() const;

  Context& context_;
  ControlPage page_;
  int rank_;
  std::atomic<bool> stop_{false};
  Suspension suspension_;
  mutable std::mutex mutex_;
  std::vector<Members> members_;  // by lane; null where it is free
  int last_lane_ = -1;
};

/// The sentence of an exception: what(), or a stand-in for foreign types.
std::string describe(std::exception_ptr error);
/// The exit code that goes with it: an Error's kind, 5 without memory, otherwise rank_failed (one process: internal).
int exit_code(std::exception_ptr error, int world_size);

}  // namespace shardgrad::dist
