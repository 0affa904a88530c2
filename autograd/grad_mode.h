#pragma once
// Whether the calling thread records its operations for backward. A rank may have several threads: NoGrad in a helper
// leaves the others alone.

#include <shardgrad/core/context.h>

namespace shardgrad {

namespace detail {
inline constinit thread_local ThreadSetting<bool> grad_mode{true};
}

inline bool grad_enabled() { return detail::grad_mode.of(context()); }

/// Sets whether the calling thread's operations are recorded, for a scope.
class GradMode {
 public:
  explicit GradMode(bool enabled) : scope_(detail::grad_mode, enabled) {}

 private:
  ThreadSetting<bool>::Scope scope_;
};

/// NoGrad scope; nothing inside is recorded for backward.
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};

namespace detail {
inline constinit thread_local ThreadSetting<bool> anomaly_mode{false};
}

/// In its scope, backward stops at the first operation that makes NaN of gradients without one, naming it. Each
/// operation waits for the device: for finding a fault, not for training. With false it does not.
class DetectAnomaly {
 public:
  explicit DetectAnomaly(bool on = true) : scope_(detail::anomaly_mode, on) {}

 private:
  ThreadSetting<bool>::Scope scope_;
};

}  // namespace shardgrad
