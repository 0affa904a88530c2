#pragma once
// Whether a model can be trained on the parts that a batch falls into. Where the samples, the ranks and the
// micro-batches do not divide, some are smaller than rank 0's first: of 97 samples in batches of 32 the last batch has
// one sample, which on 4 ranks leaves three of them none. A layer may ask for more (BatchNorm for two), or a model be
// written for one number of rows alone; a run would find that at the end of its first epoch.

#include <shardgrad/dist/transports/pretended_ranks.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::train {

/// Tries the loss of each size that rank 0 or the last rank of `ranks` will see, on device meta. Throws Error(input)
/// with the batch, the rank, what the task says of it and the nearest batches that work; not where no size works, for
/// then it is another matter.
void check_short_batches(const Config& config, const data::Outline& data, int ranks,
                         const dist::PretendedRanks& as = {});

}  // namespace shardgrad::train
