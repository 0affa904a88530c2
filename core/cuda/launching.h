#pragma once
// Of several GPUs of a process, the one that a kernel is for.

#include <shardgrad/core/device.h>

namespace shardgrad {

/// The GPU on whose stream the calling thread launches, or has launched last: the one where a piece of work gets the
/// memory that it needs for itself.
Device launching_device();

}  // namespace shardgrad
