#pragma once
// The data of a configuration, cut for the ranks.

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/data_loader.h>
#include <shardgrad/train/data/fashion_mnist.h>

namespace shardgrad::train {

data::DataLoader make_loader(const Config& config, dist::ProcessGroup& world, data::FashionMnist::Split split);

/// Refuses, on every rank, what would only fail later: a model that does not fit the data, ranks that differ in
/// settings or data. A collective.
void check_start(const Config& config, dist::ProcessGroup& world, const data::DataLoader& train,
                 const data::DataLoader& test);

}  // namespace shardgrad::train
