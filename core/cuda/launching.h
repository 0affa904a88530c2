#pragma once
// Of several GPUs of a process, the one that a thread works on, and the one that a kernel is for.

#include <shardgrad/core/device.h>

namespace shardgrad {

/// The GPU on whose stream the calling thread launches, or has launched last: the one where a piece of work gets the
/// memory that it needs for itself.
Device launching_device();

/// Makes it the one that CUDA takes the calling thread's next calls for. Which one that is, CUDA is asked each time,
/// for other code in the thread may choose another; asking costs less than choosing, and comes before each launch.
void use_gpu(int gpu);

}  // namespace shardgrad
