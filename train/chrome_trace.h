#pragma once
// What a recorder has kept, for people to look at.

#include <string>

#include <shardgrad/core/recorder.h>

namespace shardgrad::train {

/// The Chrome trace (chrome://tracing, Perfetto) of the kept records, as JSON text; `rank` becomes the process id.
std::string chrome_trace(const Recorder& recorder, int rank);

}  // namespace shardgrad::train
