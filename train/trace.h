#pragma once
// What the ranks of a run did in some of its steps: runs/NAME/trace.json. It is a Chrome trace, which Perfetto and
// chrome://tracing open, and holds all that the pictures of a run are drawn of:
//
//     a process for each rank          "rank 1"
//     a thread for each of its lanes   "compute", "communication", and "steps", whose events say which step it was
//     an event for each record         "all_gather layer0", with the record's numbers as arguments
//     counters of rank 0               bytes in memory by category, where they change

#include <string>
#include <vector>

#include <shardgrad/core/recorder.h>
#include <shardgrad/picture/memory.h>

namespace shardgrad::train {

/// Ranks from here on are left out: a picture has no room for them, and the file would be large.
inline constexpr int kTracedRanks = 64;

/// One rank's part. Seconds are by a clock that all ranks share.
struct RankTrace {
  struct Step {
    int64_t number = 0;
    double begin = 0, end = 0;
    bool operator==(const Step&) const = default;
  };
  int rank = 0;
  std::string host;
  std::vector<Step> steps;
  std::vector<Record> records;
  picture::BytesOverTime memory{};
};

/// The records that begin in the last of the steps; all of them where there are no steps.
std::vector<Record> last_step(const RankTrace& trace);

/// The events of one rank, as they stand in a file, without what is around them.
std::string trace_events(const RankTrace& trace);
/// The file of all ranks' events.
std::string trace_file(const std::vector<std::string>& events);
/// The ranks of a file, in the order of their numbers. `path` names it in errors: throws Error(input) for one that is
/// damaged, or written by another program.
std::vector<RankTrace> read_trace(const std::string& path);

}  // namespace shardgrad::train
