#pragma once
// Whole tensors of what the ranks of a mesh hold: flat shards of parts. Inside state/.

#include <shardgrad/fsdp/state/pieces.h>

namespace shardgrad::fsdp {

/// Whole tensors on the cpu, by name, where they are `wanted`, of what `ranks` hold; `mine` has a slice of every name,
/// perhaps an empty one. A piece at a time goes to every rank, and those that have a copy of it compare. So none needs
/// memory for more than a piece beside what is wanted. Throws Error(input) on every rank where parts do not make whole
/// tensors (HeldParts), or copies differ. A collective, shown as `call`.
StateDict join(std::span<const StateSlice> mine, dist::ProcessGroup& ranks, const char* call, bool wanted);

/// Throws as join does for parts that do not make whole tensors.
void check_parts(std::span<const StateSlice> mine, dist::ProcessGroup& ranks, const char* call);

}  // namespace shardgrad::fsdp
