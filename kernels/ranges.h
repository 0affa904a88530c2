#pragma once
// Flat ranges that one call of a kernel works off: the updates of a step, and what a norm is summed from (ops.h). A
// device whose launches cost more than an element takes several at once.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <shardgrad/core/view.h>

namespace shardgrad::kernels {

/// A flat range, what belongs to it, and how it is updated: neighbours may obey different rules.
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
