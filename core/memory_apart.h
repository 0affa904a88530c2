#pragma once
// Memory for device sim, whose simulator tells blocks by their addresses: behind each block are kApart bytes of
// addresses that are nobody's, so what a kernel writes past a block's end by less is no other block's.

#include <shardgrad/core/allocator.h>

namespace shardgrad {

inline constexpr size_t kApart = size_t(1) << 20;

/// A caching allocator whose blocks are never cut from larger ones.
Ref<Allocator> make_allocator_apart(Device device, Reuse reuse);

}  // namespace shardgrad
