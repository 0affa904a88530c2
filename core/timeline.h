#pragma once
// What a trace shows of a step beside the collectives, which the groups record: a span for each call of a unit and for
// its backward, on the lane of the compute stream, and one for each copy between device and host. Nothing is recorded
// unless the recorder is tracing. A profiler of the device is told of the same calls (NVTX ranges).

#include <map>
#include <optional>
#include <string>

#include <shardgrad/core/recorder.h>
#include <shardgrad/core/stream.h>

namespace shardgrad {

/// A span of what `stream` does from here to end_span; none unless tracing.
std::optional<uint64_t> begin_span(Stream& stream, Record record);
void end_span(Stream& stream, std::optional<uint64_t> span);

/// The open spans of compute.
class Timeline {
 public:
  /// `what` is "forward", "recompute" or "backward". A span that is open already goes on.
  void begin(const char* what, const std::string& unit);
  void end(const char* what, const std::string& unit);
  void end_all();

 private:
  struct Open {
    std::optional<uint64_t> span;
    uint64_t range;  // of the device's profiler; 0: none
  };
  void close(const Open& open);
  std::map<std::pair<std::string, std::string>, Open> open_;
};

}  // namespace shardgrad
