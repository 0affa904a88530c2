#pragma once
// What a trace shows of a step beside the collectives, which the groups record: a span for each call of a unit, for its
// backward, for each wait for a collective and for the optimizer's step, on the lane of the compute stream, and one for
// each copy between device and host. But for moments (`instant`) nothing is recorded unless the recorder is tracing. A
// profiler of the device is told of the units' calls too (NVTX ranges).

#include <map>
#include <optional>
#include <string>

#include <shardgrad/core/device.h>
#include <shardgrad/core/recorder.h>
#include <shardgrad/core/stream.h>

namespace shardgrad {

/// A span of what `stream` does from here to end_span; none unless tracing.
std::optional<uint64_t> begin_span(Stream& stream, Record record);
void end_span(Stream& stream, std::optional<uint64_t> span);

/// A span of what the device's compute stream does from here to the end of the scope; none unless tracing.
class ComputeSpan {
 public:
  ComputeSpan(Device device, Record record);
  ~ComputeSpan();
  ComputeSpan(const ComputeSpan&) = delete;
  ComputeSpan& operator=(const ComputeSpan&) = delete;

 private:
  Stream& stream_;
  std::optional<uint64_t> span_;
};

/// The open spans of compute.
class Timeline {
 public:
  /// `what` is "forward", "recompute" or "backward". A span that is open already goes on.
  void begin(const char* what, const std::string& unit);
  void end(const char* what, const std::string& unit);
  void end_all();
  /// A record with no duration, in any case; while tracing when compute gets there, which the host may be ahead of.
  void instant(Record record);

 private:
  struct Open {
    std::optional<uint64_t> span;
    uint64_t range;  // of the device's profiler; 0: none
  };
  void close(const Open& open);
  std::map<std::pair<std::string, std::string>, Open> open_;
};

}  // namespace shardgrad
