#pragma once
// Which model training starts from: one, on all ranks.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::fsdp {

/// 64 bits that differ where the bits of the values do; 0 for a tensor without memory.
uint64_t hash_of_values(const Tensor& tensor);

uint64_t hash_of_numbers(std::span<const int64_t> numbers);
/// The seeds that the numbers to come follow from: the context's; and the one that the parameters without values yet
/// were made with, or a hash of all of theirs where there are several.
std::array<int64_t, 2> seeds_of(nn::Module& root);
/// Throws Error(input) on every rank when ranks have other structures (`structure` says all of it), other seeds or
/// other values in parameters and buffers; with `from_rank0` only the structure is compared. A collective.
void check_same_start(nn::Module& root, const std::string& structure, dist::ProcessGroup& world, bool from_rank0);

/// Gives what is not sharded rank 0's values: the parameters `left_out`, and the buffers of `root` and below. A
/// collective.
void broadcast_rest(nn::Module& root, std::span<const NamedParameter> left_out, dist::ProcessGroup& world);

}  // namespace shardgrad::fsdp
