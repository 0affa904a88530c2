#pragma once
// Pinned host memory. A GPU copies from and to it while the host goes on, so a block that the host gives back inline
// may still be in use by any stream of the GPU: it is handed out again when all of them have come to that point.

#include <memory>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/cuda/memory.h>
#include <shardgrad/core/cuda/stream.h>

namespace shardgrad {

/// Of device cpu. `pool` knows the GPU's streams.
Ref<Allocator> make_pinned_allocator(Context& context, std::shared_ptr<CudaEventPool> pool,
                                     std::shared_ptr<CudaArena> arena);

}  // namespace shardgrad
