#pragma once
// What a unit's memory was, when, as far as its records say. Of a unit under zero3, in forward:
//
//     all_gather 1-3, forward 3-6, reshard at 6        sharded [0,1), gathering [1,3), gathered [3,6), sharded [6,…)
//
// A unit that is gathered again without having been released, such as one whose parameters stay, is gathered on. Before
// its first record it is sharded, unless that releases it.

#include <span>
#include <string>
#include <vector>

#include <shardgrad/core/recorder.h>
#include <shardgrad/picture/overlap.h>

namespace shardgrad::picture {

enum class UnitIs : uint8_t { sharded, gathering, gathered };

struct UnitSpan {
  UnitIs is = UnitIs::sharded;
  Interval time;
  bool operator==(const UnitSpan&) const = default;
};

struct UnitStates {
  std::string unit;
  std::vector<UnitSpan> spans;      ///< end to end, none without length
  std::vector<Interval> computing;  ///< calls and backward; only a trace has these
  std::vector<Interval> reducing;   ///< its gradients are sent
};

/// One for each unit of the records, in the order in which they are first met, from `begin` to `end`, until when what
/// has not ended is taken to last.
std::vector<UnitStates> unit_states(std::span<const Record> records, double begin, double end);

}  // namespace shardgrad::picture
