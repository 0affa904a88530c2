#pragma once
// Mixed precision for a scope (docs/mixed_precision.md).

#include <optional>

#include <shardgrad/core/context.h>
#include <shardgrad/core/dtype.h>
#include <shardgrad/core/ledger.h>
#include <shardgrad/core/ref.h>

namespace shardgrad::Category {
inline constexpr Kind converted_parameter = named<"converted_parameter">;  ///< what a scope of Autocast keeps
}

namespace shardgrad {

namespace detail {
class ConvertedCopies;
struct AutocastSetting {
  std::optional<DType> dtype = {};
  ConvertedCopies* copies = nullptr;  // of the outermost scope with a dtype
};
inline constinit thread_local ThreadSetting<AutocastSetting> autocast{AutocastSetting{}};
}  // namespace detail

/// The 16-bit dtype that the calling thread's matrix products compute in, if any.
inline std::optional<DType> autocast_dtype() { return detail::autocast.of(context()).dtype; }

/// Mixed precision for a scope of the calling thread: operations convert their f32, f16 and bf16 operands (never f64),
/// differentiably.
///
///     linear, matmul, attention                               compute in `dtype`, bf16 or f16
///     losses, normalisations, softmax, sums, means, norms,    compute in f32
///     exp, log, pow
///     operations on two tensors, cat                          compute in the wider dtype of their operands
///
/// Others keep the dtype they are given. No dtype: off. Parameters stay f32, and so do their gradients and the sums of
/// these. The converted copy of a parameter that is used once is not kept for backward but made again; the one of a
/// plain parameter that is used again, unchanged, serves its further uses until the outermost scope ends.
class Autocast {
 public:
  /// Throws Error(input) unless dtype is bf16 or f16.
  explicit Autocast(std::optional<DType> dtype);
  ~Autocast();

 private:
  Ref<detail::ConvertedCopies> copies_;
  ThreadSetting<detail::AutocastSetting>::Scope scope_;
};

}  // namespace shardgrad
