#pragma once
// What a tensor holds, as one number: the sum over its elements of mix(index, bits), modulo 2^64. Ranks add up what
// each has of it, so the number does not show how many they are. For an index, mix is one-to-one in the bits: one that
// changed always changes the sum.

#include <cstdint>
#include <map>
#include <string>

#include <shardgrad/core/dtype.h>
#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::train {

/// Of `count` elements in host memory, the first of which is the tensor's element `first`.
uint64_t content_hash(const void* elements, DType dtype, int64_t count, int64_t first);
/// The first of them that is infinite or not a number; `count` where there is none.
int64_t first_not_finite(const void* elements, DType dtype, int64_t count);

/// By the tensor's name.
using Hashes = std::map<std::string, uint64_t>;
/// The sums over all ranks; the names are the same on all. A collective.
Hashes sum_over_ranks(dist::ProcessGroup& world, const Hashes& mine);
/// One number for all of them, names included.
uint64_t hash_of(const Hashes& hashes);

/// Of its bytes.
uint64_t text_hash(const std::string& text);

/// Sixteen hexadecimal digits, and back; throws Error(input) for anything else.
std::string hash_text(uint64_t hash);
uint64_t parse_hash(const std::string& text);

}  // namespace shardgrad::train
