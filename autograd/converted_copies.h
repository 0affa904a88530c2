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
#include <utility>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/dtype.h>
#include <shardgrad/core/ref.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad::detail {

/// Of one thread; they go with the last of the scopes that have them.
class ConvertedCopies final : public RefCounted {
 public:
  /// The values of `x` in `dtype`, in memory that others read, too. Undefined where x is converted for this use alone:
  /// at its first use, at the first one after a change in place, where it is no plain parameter, and in a captured step
  /// around which the scope lies. Throws Error(input) when x is not in memory.
  Tensor of(const Tensor& x, DType dtype);

 private:
  struct Use {
    // When it was used: to compare with, for a note keeps nothing alive.
    const Storage* storage = nullptr;
    size_t offset = 0;
    uint64_t version = 0;
    Tensor copy = {};  // undefined after one use

    bool is_of(const Tensor& x) const {
      return storage == x.storage().get() && offset == x.offset() && version == x.version();
    }
  };
  const Capture* const capture_ = Capture::current();  // its replays have no scope: what they read is made in the step
  std::map<std::pair<uint64_t, DType>, Use> uses_;     // by Leaf::id()
};

}  // namespace shardgrad::detail
