#pragma once
// Flat ranges that one call of a kernel works off: the updates of a step, and what a norm is summed from (ops.h). A
// device whose launches cost more than an element takes several at once.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <shardgrad/core/view.h>

namespace shardgrad::kernels {

/// How new numbers of bf16 are rounded: up or down by chance, so that their mean is what f32 would have. 16 random bits
/// are added below the last one that is kept, and all below it is cut off; what bf16 has stays as it is, and so does
/// not-a-number. Those of element i are the upper ones of lane (begin + i) % 4 of Philox4x32-10(key = seed, counter =
/// (begin + i) / 4 and 0).
struct Rounding {
  uint64_t seed = 0;
  int64_t begin = 0;  ///< index of the first element, so a range of a parameter is rounded as the whole would be

  static constexpr int64_t kNumbers = 2;  ///< the halves of the seed, which is another in each step
  void write(double* to) const { to[0] = double(seed >> 32), to[1] = double(uint32_t(seed)); }
  void take(const double* from) { seed = uint64_t(from[0]) << 32 | uint64_t(from[1]); }
};

/// A flat range, what belongs to it, and how it is updated: neighbours may obey different rules. Where p is bf16, g is
/// too, the state is f32, there is no copy, and the new p is rounded by chance (Args::rounding).
template <class Args> struct UpdateRange {
  OutView p;
  std::array<OutView, 2> state;  ///< as the operation says
  OutView copy;                  ///< undefined, or of a narrower floating dtype: gets the new p, rounded once
  View g;
  Args args;
  View numbers = {};  ///< undefined, or f64, as Args::write has them: in all ranges of a call, end to end

  template <class Visitor> void for_each_operand(Visitor&& visit) const {
    visit(p), visit(state[0]), visit(state[1]), visit(copy), visit(g), visit(numbers);
  }
};
inline constexpr size_t kUpdatesTogether = 28;  ///< ranges of a call at most: what a kernel's arguments have room for
/// The ranges of a call, at least one: all of one dtype, and their copies of one dtype. No two of them overlap.
template <class Args> using UpdateRanges = std::shared_ptr<const std::vector<UpdateRange<Args>>>;
template <class Args>
UpdateRanges<Args> one_range(OutView p, std::array<OutView, 2> state, OutView copy, View g, Args args) {
  return std::make_shared<std::vector<UpdateRange<Args>>>(1, UpdateRange<Args>{p, state, copy, g, args});
}

/// A flat range of gradients, and where its powers go.
struct NormRange {
  OutView y;
  View x;
  int64_t width;

  template <class Visitor> void for_each_operand(Visitor&& visit) const { visit(y), visit(x); }
};
inline constexpr size_t kNormsTogether = 96;  ///< ranges of a call at most
/// The ranges of a call, at least one: all x of one dtype. No two y overlap.
using NormRanges = std::shared_ptr<const std::vector<NormRange>>;

}  // namespace shardgrad::kernels
