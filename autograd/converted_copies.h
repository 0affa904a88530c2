#pragma once
// What a scope of Autocast keeps of parameters that are used again and again in it, as in a loop over time or over
// tokens: their values in 16 bits. Only values are shared. Each use records a conversion of its own, so the gradients
// of several uses are converted to the parameter's dtype before they add up, and have the bits that they have without.
//
// A first use only leaves a note, for most parameters have one use in a scope, and its copy would be 2 bytes an element
// for nothing. Backward, and what it runs again, reads copies and keeps none.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/dtype.h>
#include <shardgrad/core/ref.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {

class Leaf;

namespace detail {

/// Of one thread. They go with the last of the scopes that have them, and those of a leaf that is gone when another is
/// made.
class ConvertedCopies final : public RefCounted {
 public:
  /// The values of `x` in `dtype`, in memory that others read, too. Undefined where x is converted for this use alone:
  /// at its first use, at the first one after a change in place, where it is no plain parameter, and in a captured step
  /// around which the scope lies. Throws Error(input) when x is not in memory.
  Tensor of(const Tensor& x, DType dtype);

 private:
  struct Use {
    // When it was used: to compare with, for a note keeps nothing alive.
    std::weak_ptr<const void> leaf;
    const Storage* storage;
    size_t offset;
    uint64_t version, leased;
    Tensor copy = {};  // undefined after one use

    bool is_of(const Tensor& x) const {
      return !leaf.expired() && storage == x.storage().get() && offset == x.offset() && version == x.version() &&
             leased == storage->leased();
    }
  };
  /// Those of leaves that are gone. Called when their number or bytes have doubled.
  void forget_gone();

  const Capture* const capture_ = Capture::current();  // its replays have no scope: what they read is made in the step
  std::map<std::pair<const Leaf*, DType>, Use> uses_;
  size_t left_ = 0, bytes_left_ = 0;  // when it forgot last
  size_t bytes_made_ = 0;             // since then
};

}  // namespace detail
}  // namespace shardgrad
