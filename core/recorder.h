#pragma once
// What happened, in order: every collective and every unit transition. Traffic tests, schedule tests, the trace, and
// the hang diagnosis are all readers of this one list.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/dtype.h>

namespace shardgrad {

/// A collective or a unit's transition; while tracing also a call, a wait, a copy or an optimizer's step. Times are
/// seconds since the context was made; `end` is negative while running.
struct Record {
  uint64_t sequence = 0;   ///< position among this context's records
  std::string op;          ///< "all_gather", "reduce_scatter", …, or the end of a unit's full memory: "reshard"
  std::string unit;        ///< the unit's name; empty outside units
  std::string phase;       ///< "forward", "backward", "step", …
  std::string lane;        ///< the stream it ran on
  int64_t elements = 0;    ///< elements of the whole collective (all ranks' parts together)
  int64_t bytes_sent = 0;  ///< bytes this rank sends: elements · size · (W-1)/W for gather and reduce-scatter
  DType dtype = DType::f32;
  double begin = 0, end = -1;
  uint64_t group = 0;   ///< of a collective and of a wait for one: which process group, the same on all its ranks
  uint64_t number = 0;  ///< and which of that group's collectives, from 1 on
};

/// A bounded list of records: the newest `capacity`, and all of the step that runs, of which the newest
/// `most_of_a_step`, or a quarter of them until an optimizer has stepped: generation never does. At most twice as many
/// are there; while tracing all. Thread safe.
class Recorder {
 public:
  static constexpr size_t kMostOfAStep = size_t(1) << 16;
  explicit Recorder(size_t capacity = 4096, size_t most_of_a_step = kMostOfAStep)
      : capacity_(capacity), most_of_a_step_(most_of_a_step) {}
  /// Adds a record, stamps its sequence and begin time, and returns the sequence.
  uint64_t begin(Record record);
  /// Stamps the begin time anew: queued work starts to run.
  void start(uint64_t sequence);
  /// Stamps the end time. Records that have left the list are ignored.
  void end(uint64_t sequence);
  /// A record with no duration.
  void instant(Record record);
  /// An optimizer has stepped: the next record of another phase than "step" is the first of a new step.
  void end_step();
  std::vector<Record> records() const;
  /// The record of this sequence, unless it has left the list.
  std::optional<Record> record(uint64_t sequence) const;
  void clear();
  /// While tracing nothing is dropped, and what only a trace shows is recorded too.
  void set_tracing(bool on);
  bool tracing() const { return tracing_.load(std::memory_order_relaxed); }
  /// Sums over every record ever made, dropped or not.
  int64_t total_bytes_sent() const;
  double now() const;
  /// The machine's monotonic clock at this recorder's second 0, by which recorders of one machine are compared.
  double zero() const { return epoch_; }

 private:
  mutable std::mutex mutex_;
  std::vector<Record> records_;
  size_t capacity_, most_of_a_step_;
  uint64_t next_ = 0, step_begin_ = 0;  // sequences
  bool step_is_over_ = false, steps_ = false;
  int64_t bytes_sent_ = 0;
  std::atomic<bool> tracing_{false};
  double epoch_ = monotonic_seconds();
  static double monotonic_seconds();
  void forget();
};

}  // namespace shardgrad
