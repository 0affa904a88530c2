#pragma once
// From a configuration to the objects of a training job.

#include <memory>
#include <optional>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/optim/optimizer.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/data_loader.h>
#include <shardgrad/train/task.h>

namespace shardgrad::train {

/// For samples with these fields, where they are known. Throws Error(input) for a pattern of model.recompute that fits
/// no module.
std::unique_ptr<Task> make_task(const Config& config, const std::vector<data::Field>& fields = {});

/// The samples, the same on every rank.
data::Splits open_data(const Config& config);
/// This rank's part of them.
data::DataLoader make_loader(const Config& config, const dist::ProcessGroup& world,
                             std::shared_ptr<const data::Dataset> samples, bool shuffle);

/// The task's module as the configuration says: its parameters over the ranks, and its BatchNorms over all samples
/// where it has sync_batchnorm. Refers to `world`. Throws Error(input) for a sharding that cannot work. A collective.
std::shared_ptr<fsdp::Sharded> make_sharded(const Config& config, Task& task, dist::ProcessGroup& world);

/// The task's own, or what the config says, over the parameters as they are now: call it after fully_shard. Throws
/// Error(input) for one of its own that leaves out a parameter that is trained.
Optimizers make_optimizers(const Config& config, Task& task);

/// What matrix products of a task's forward compute in, for an Autocast.
std::optional<DType> forward_dtype(const Config& config);

/// Scales losses where f16 is computed in, else does nothing.
optim::GradScaler make_scaler(const Config& config, dist::ProcessGroup& world);

}  // namespace shardgrad::train
