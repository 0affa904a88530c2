#pragma once
// Where a training loop is. Random numbers are a function of it, so that recompute and any number of ranks draw the
// same, and a run that goes on from a checkpoint draws what it would have drawn:
//
//     sg::progress() = {step, first_sample};     // before each forward pass

#include <cstdint>
#include <unordered_map>

#include <shardgrad/core/context.h>

namespace shardgrad {

struct Progress {
  uint64_t step = 0;
  /// Place in the global batch of this rank's first sample. -1, nobody has said: dropout draws a mask of its own on
  /// every rank, which no other number of ranks would.
  int64_t first_sample = -1;
  /// Per random stream, how often it was drawn from in this pass. Saved and put back around a recomputed region.
  std::unordered_map<uint64_t, uint64_t> draws = {};
  /// The stream of the next draw from `stream`: one for each step and draw.
  uint64_t next_stream(uint64_t stream);
};

/// The current context's: all threads of a rank have one.
inline Progress& progress() { return context().slot<Progress>(); }

}  // namespace shardgrad
