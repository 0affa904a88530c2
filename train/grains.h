#pragma once
// The same bits on any number of ranks (docs/grains.md). A batch is cut into `grains` parts, which do not depend on the
// ranks; each goes through the model alone, and what it brings is added in one tree over all grains, whoever holds
// them. Rank r of W has the grains r, W + r, 2 W + r, …: so in each pass the ranks together have W neighbours, which is
// what a reduction over ranks adds first. Four grains:
//
//     1 rank     passes 0, 1, 2, 3          (0 + 1) + (2 + 3), all by the rank        (dist/transports/pass_sums.h)
//     2 ranks    passes 0, 2 and 1, 3       (0 + 1) and (2 + 3) by a reduction each, then their sum by each rank
//     4 ranks    a pass each                (0 + 1) + (2 + 3), all by one reduction   (dist/transports/tree_sum.h)

#include <string>
#include <vector>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/module.h>
#include <shardgrad/train/config.h>

namespace shardgrad::train {

/// Parts of a rank's samples that go through the model one after the other.
int64_t passes_of(const Config& config, int ranks);

/// Throws Error(input) where runs with grains on so many ranks, or of this module, would not have the bits of others:
/// ranks that are no power of two or do not divide the grains; BatchNorm, whose statistics are of the samples that are
/// in one pass; sums of NCCL.
void check_grains(const Config& config, int ranks);
void check_grains(const Config& config, nn::Module& module);
void check_grains(const Config& config, const dist::ProcessGroup& world);

/// Under which conditions other jobs have the same bits, for people; empty without grains. `threads`: of this rank.
std::string grains_note(const Config& config, int threads);
/// How batches fall into parts (batch_arithmetic.h), and that.
std::string about_batches(const Config& config, int ranks, int64_t samples);

/// Of values for each of a rank's grains, (passes, count), or without grains (count): the sums over all ranks' grains,
/// of f32 in f32 and of f64 in f64. A collective. The values are replaced.
std::vector<double> sums_over_ranks(const Tensor& values, int64_t count, dist::ProcessGroup& world,
                                    const dist::Label& label);

}  // namespace shardgrad::train
