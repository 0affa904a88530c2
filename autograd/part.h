#pragma once
// Where a part of a larger parameter (Part) lies in it.

#include <cstdint>
#include <string>
#include <vector>

#include <shardgrad/autograd/parameter.h>
#include <shardgrad/core/shape.h>

namespace shardgrad {

/// Throws Error(input), beginning with `what`, where the whole does not have the indices that the part is to hold.
/// `shape` is the part's own, here and below.
void check_part(const std::string& what, const Shape& shape, const Part& part);
/// The larger parameter's shape; its own where it is no part.
Shape whole_shape(const Shape& shape, const Part& part);
/// Whether it is no part, or one that holds every index.
bool is_whole(const Shape& shape, const Part& part);

/// Elements of a part that lie end to end in the whole, too.
struct PartRun {
  int64_t in_part;   ///< its first element, counted in the part
  int64_t in_whole;  ///< and in the whole
  int64_t count;
};
/// Elements [begin, begin + count) of the part, in order. One run along dimension 0; columns [2, 4) of (3, 4):
///     part (3, 2)    0 1    2 3    4 5
///     whole          2 3    6 7   10 11
std::vector<PartRun> runs_of(const Shape& shape, const Part& part, int64_t begin, int64_t count);

}  // namespace shardgrad
