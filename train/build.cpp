#include <shardgrad/train/build.h>

#include <shardgrad/core/context.h>
#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/fsdp/sync_batchnorm.h>
#include <shardgrad/nn/recompute.h>
#include <shardgrad/train/registry.h>

namespace shardgrad::train {

std::unique_ptr<Task> make_task(const Config& config, const std::vector<data::Field>& fields) {
  std::unique_ptr<Task> task = config.registry->make_task(config.task, config.model);
  if (!config.recompute.empty()) nn::recompute_by_name(task->module(), config.recompute);
  if (!config.recompute_regex.empty()) nn::recompute_by_regex(task->module(), config.recompute_regex);
  task->prepare(fields);
  return task;
}

data::Splits open_data(const Config& config) {
  TagScope tag(Category::data);  // samples that a user's code makes by operations are no activations
  return config.registry->open_data(config.data, uint64_t(config.seed));
}

data::DataLoader make_loader(const Config& config, const dist::ProcessGroup& world,
                             std::shared_ptr<const data::Dataset> samples, bool shuffle) {
  return {
      std::move(samples),
      {.batch = config.batch,
       .shuffle = shuffle,
       .seed = uint64_t(config.seed),
       .rank = world.rank(),
       .world_size = world.size(),
       .grains = config.grains % world.size() == 0 ? config.grains : 0,  // evaluated on others: not to the same bits
       .device = context().default_device()}};
}

static fsdp::Config make_sharding(const Config& config) {
  fsdp::Config sharding = config.fsdp.options;
  sharding.strategy = fsdp::parse_strategy(config.strategy);
  if (config.fsdp.wrap == "size") sharding.wrap = fsdp::wrap_by_size(config.fsdp.wrap_numel);
  if (config.fsdp.wrap == "types")
    sharding.wrap =
        fsdp::wrap_any({fsdp::wrap_by_type(config.fsdp.wrap_types), fsdp::wrap_by_name(config.fsdp.wrap_names),
                        fsdp::wrap_by_regex(config.fsdp.wrap_regex)});
  return sharding;
}

std::shared_ptr<fsdp::Sharded> make_sharded(const Config& config, Task& task, dist::ProcessGroup& world) {
  if (config.sync_batchnorm) fsdp::convert_sync_batchnorm(task.module(), world);
  return fsdp::fully_shard(task.module(), world, make_sharding(config));
}

std::optional<DType> forward_dtype(const Config& config) {
  if (config.autocast == "off") return {};
  return config.autocast == "bf16" ? DType::bf16 : DType::f16;
}

optim::GradScaler make_scaler(const Config& config, dist::ProcessGroup& world) {
  bool narrow = config.fsdp.options.param_dtype == DType::f16 || forward_dtype(config) == DType::f16;
  return fsdp::sharded_grad_scaler(world, {.enabled = narrow});
}

}  // namespace shardgrad::train
