#pragma once
// From a configuration to the objects of a training job.

#include <memory>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/setup/config.h>
#include <shardgrad/nn/containers.h>
#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/optim/optimizer.h>
#include <shardgrad/optim/schedule.h>
#include <shardgrad/train/config.h>

namespace shardgrad::train {

/// Linear layers "layer0", "layer1", … with the activation between them. relu is part of its layer's matrix product;
/// the others are modules "activation0", …. Throws Error(input) for a pattern of `recompute` that fits no module.
nn::Child<nn::Sequential> make_mlp(const Config::Model& model);

/// The loss, in f32, of outputs `y` of any dtype over `count` samples of the global batch. labels: i64 (N).
Tensor loss_of(const Config& config, const Tensor& y, const Tensor& labels, int64_t count);

fsdp::Config make_sharding(const Config& config);

/// Over the parameters as they are now: call it after fully_shard.
std::unique_ptr<optim::Optimizer> make_optimizer(const Config::Optimizer& options,
                                                 std::vector<NamedParameter> parameters);

/// Scales losses where parameters are f16, else does nothing.
optim::GradScaler make_scaler(const Config& config, dist::ProcessGroup& world);

/// The factor of the learning rate over a run of `total` steps.
optim::Schedule make_schedule(const Config::Schedule& schedule, int64_t total);

}  // namespace shardgrad::train
