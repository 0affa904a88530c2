#pragma once
// For code that computes with values where tensors have none.

#include <shardgrad/core/thread_setting.h>

namespace shardgrad {

namespace detail {
inline constinit thread_local ThreadSetting<bool> pretends_zeros{false};
}

/// In its scope tensors on meta read as zeros and are not moved to the host, so that what reads them can be planned.
class PretendZeros {
  ThreadSetting<bool>::Scope scope_{detail::pretends_zeros, true};
};

}  // namespace shardgrad
