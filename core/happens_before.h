#pragma once
// A race detector for streams, in the manner of FastTrack (Flanagan and Freund, PLDI 2009), at the moment work is
// queued. Every stream has a vector clock: entry t is the newest piece of work of stream t known to come before.
//
//     compute: write X (tick 5)          record E: clock {compute: 5}
//     comm:    wait E -> {compute: 5}    read X: the last write (compute, 5) <= 5, ordered: fine
//     comm:    read X without the wait:  5 > 0: reported with both labels, whatever the timing was
//
// So a missing wait is found in every run, not only in the unlucky ones. Stream 0 is the host thread. The detector is
// always on for devices acc and sim, elsewhere with Context::Options::check_streams.

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/core/error.h>

#include <shardgrad/core/stream.h>

namespace shardgrad {

class HappensBefore {
 public:
  HappensBefore();
  /// Registers a stream; its id indexes every vector clock.
  int add_stream(std::string name);
  /// One piece of work on stream `id`. Throws Error(internal) naming both pieces of work when an earlier conflicting
  /// access is not ordered before this one.
  void work(int id, const char* label, std::span<const Access> accesses);
  VectorClock record(int id);
  void wait(int id, const VectorClock& clock);
  /// A stream goes, and the host has waited for all its work. Another may come to lie at its address, by which
  /// allocators know it: what the old one did is then ordered before.
  void end_stream(int id) { host_wait(record(id)); }
  /// The host thread waited for an event.
  void host_wait(const VectorClock& clock) { wait(0, clock); }
  /// Access by the host thread itself, e.g. Tensor::data().
  void host_access(const char* label, const Access& access) { work(0, label, {&access, 1}); }
  /// Memory went back to the operating system: forget its history.
  void forget(const void* begin, size_t bytes);

 private:
  struct Touch {
    int stream;
    uint64_t tick;
    const char* label;
  };
  struct Range {
    uintptr_t end;
    std::vector<Touch> writes, reads;
  };
  void split_at(uintptr_t address);
  void check(const VectorClock& clock, const std::vector<Touch>& touches, int id, const char* label, const char* verb);
  std::mutex mutex_;
  std::vector<std::string> names_;
  std::vector<VectorClock> clocks_;
  std::map<uintptr_t, Range> ranges_;  // disjoint, keyed by begin
};

}  // namespace shardgrad
