#pragma once
// Memory for device sim, whose simulator tells blocks by their addresses: behind each block are kApart bytes of
// addresses that are nobody's, so what a kernel writes past a block's end by less is no other block's.

#include <cstdint>
#include <memory>

#include <shardgrad/core/allocator.h>

namespace shardgrad {

inline constexpr size_t kApart = size_t(1) << 20;

/// Takes each block of the operating system by itself.
std::shared_ptr<MemorySource> memory_apart();
/// For make_growing_allocator: no block is cut from a larger one.
inline constexpr size_t kNeverCut = SIZE_MAX;
/// A caching allocator whose blocks are never cut from larger ones.
Ref<Allocator> make_allocator_apart(Device device, Reuse reuse);

}  // namespace shardgrad
