#pragma once
// Who waited for whom. A collective moves bytes when the last of its ranks has come, so whoever came before waited for
// that one. Three ranks come to a collective at 1, 4 and 2 ms:
//
//     waits, ms     for 0    for 1    for 2
//     rank 0          ·        3        ·
//     rank 1          ·        ·        ·
//     rank 2          ·        2        ·
//
// It is the communication of a rank that waits there; whether its computation waits too is in Lanes. A call that not
// all ranks of its group have a record of says nothing, and is counted as left out. Clocks of different machines are
// not good enough for this, unless they are kept together to within much less than the waits.

#include <string>
#include <vector>

#include <shardgrad/picture/lanes.h>

namespace shardgrad::picture {

struct Waits {
  std::vector<int> ranks;                    ///< as given; row and column i are of ranks[i]
  std::vector<std::vector<double>> seconds;  ///< [who][for whom]
  size_t calls = 0, left_out = 0;
};

/// What the records of all ranks say. Throws Error(input) where a rank is given twice.
Waits who_waited(const std::vector<RankRecords>& ranks);

/// Of more ranks than the picture has room for, those that waited or were waited for the longest.
struct WaitsPicture {
  Caption caption;
  Waits waits;
};
/// Throws Error(input) where `seconds` is no square of the ranks, or has a number that is negative or not finite.
std::string draw(const WaitsPicture& picture);

}  // namespace shardgrad::picture
