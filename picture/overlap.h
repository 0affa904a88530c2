#pragma once
// How much of the communication is hidden behind computation. Of the records of one rank, in milliseconds:
//
//     compute          forward 0-4, wait 4-6, forward 6-10       it computes in [0,4) and [6,10)
//     communication    all_gather 1-6                            5 ms
//                      hidden [1,4): 3 ms                        exposed [4,6): 2 ms                  60 % hidden
//
// Times are half open: a gather that ends when forward begins does not overlap it. What runs at the same time on two
// streams counts once. Within a call, or the backward, of a unit a rank computes but for what it waits; what it
// computes outside of units, such as a loss, has no record, so communication during that counts as exposed.

#include <optional>
#include <span>
#include <vector>

#include <shardgrad/core/recorder.h>

namespace shardgrad::picture {

/// From begin up to, and without, end.
struct Interval {
  double begin = 0, end = 0;
  bool operator==(const Interval&) const = default;
};

/// The same moments in order, as intervals that do not touch; those without length are dropped.
std::vector<Interval> joined(std::vector<Interval> intervals);
/// The moments of `some`, which is joined, that are not in `others`, which is joined.
std::vector<Interval> without(std::span<const Interval> some, std::span<const Interval> others);
double length_of(std::span<const Interval> intervals);

/// What a record says a rank was doing.
enum class Doing : uint8_t {
  computing,      ///< forward, backward, recompute, step
  communicating,  ///< a collective, or a copy between device and host
  waiting,        ///< compute, for a collective
  nothing,        ///< the moment at which a unit's full parameters went
};
Doing doing(const Record& record);

struct Overlap {
  std::vector<Interval> computing, exposed;  ///< joined
  double communication = 0;                  ///< seconds in which something was sent or copied
  double hidden = 0;                         ///< seconds of these in which the rank computed
  /// hidden / communication; none where nothing was sent.
  std::optional<double> share() const;
};
/// `now`: until when records that have not ended are taken to last.
Overlap overlap_of(std::span<const Record> records, double now);
/// The last moment that the records tell of; 0 where there are none.
double last_moment(std::span<const Record> records);

}  // namespace shardgrad::picture
