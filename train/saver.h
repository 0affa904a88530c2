#pragma once
// When a run is saved: every save_every steps, every save_minutes, at the best score, when it is asked to stop
// and when it ends. One checkpoint is under way at a time; with save_beside a thread writes it while training goes on,
// and the ranks commit it when they next agree that all have written their parts.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <shardgrad/train/agreement.h>
#include <shardgrad/train/callback.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/checkpoint/run_lock.h>
#include <shardgrad/train/seconds.h>

namespace shardgrad::train {

class Saver {
 public:
  using Say = std::function<void(const std::string& line)>;
  using Tell = std::function<void(const Saved& saved)>;
  /// A collective. `run` is the run's folder. Rank 0 takes its lock, removes what killed saves have left there, and
  /// makes sure that a checkpoint has room. `say` gets rank 0's lines, `tell` is called
  /// on every rank.
  Saver(const Config& config, const std::string& run, TrainingState state, Say say, Tell tell);

  /// The run begins at `reached`, which is saved if `saved`, with buffers of which those that are finite have to stay
  /// so.
  void begin_at(const Reached& reached, bool saved);
  /// What this rank has to say of saving, for the ranks' agreement.
  News news() const;
  /// After every step, on every rank: saves if that is due. `agreed`, of steps at which the ranks have talked; `best`:
  /// of weights that were tested and are the best until now. A collective where it acts, which is the same on all
  /// ranks.
  void after_step(const Reached& reached, const std::optional<Agreed>& agreed, bool best);
  /// Whether after_step saves after that step whatever the ranks agree on.
  bool is_due(int64_t step, bool best) const;
  /// Saves unless that step is saved, and returns when all is on the disk: whether it is saved. A collective.
  bool save_at_end(const Reached& reached);
  /// Ends the run badly, on all ranks, which say `why`: commits a checkpoint that is being written and finite, and
  /// throws Error(rank_failed). A collective.
  [[noreturn]] void end_badly(const std::string& why);

 private:
  void begin(const Reached& reached, bool best);
  void complete(const Reached& reached, bool best);
  void check_lock();
  void finish();
  template <class Call> void or_say_what_is_left(const Call& call) const;

  const Config& config_;
  std::string run_;
  TrainingState state_;
  Say say_;
  Tell tell_;
  dist::ProcessGroup& world_;
  std::optional<RunLock> lock_;  // rank 0's
  std::unique_ptr<CheckpointSave> under_way_;
  bool under_way_is_best_ = false;
  Clock::time_point begun_at_;
  int64_t saved_step_ = -1;
};

}  // namespace shardgrad::train
