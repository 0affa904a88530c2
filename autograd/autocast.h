#pragma once
// Mixed precision for a scope (docs/mixed_precision.md).

#include <optional>

#include <shardgrad/core/context.h>
#include <shardgrad/core/dtype.h>

namespace shardgrad {

namespace detail {
inline constinit thread_local ThreadSetting<std::optional<DType>> autocast{std::nullopt};
}

/// The 16-bit dtype that the calling thread's matrix products compute in, if any.
inline std::optional<DType> autocast_dtype() { return detail::autocast.of(context()); }

/// Mixed precision for a scope of the calling thread: operations convert their f32, f16 and bf16 operands (never f64),
/// differentiably.
///
///     linear, matmul, attention                               compute in `dtype`, bf16 or f16
///     losses, normalisations, softmax, sums, means, norms,    compute in f32
///     exp, log, pow
///     operations on two tensors, cat                          compute in the wider dtype of their operands
///
/// Others keep the dtype they are given. No dtype: off. Parameters stay f32, and so do their gradients and the sums of
/// these; the converted copy of a parameter is not kept for backward but made again.
class Autocast {
 public:
  /// Throws Error(input) unless dtype is bf16 or f16.
  explicit Autocast(std::optional<DType> dtype);

 private:
  ThreadSetting<std::optional<DType>>::Scope scope_;
};

}  // namespace shardgrad
