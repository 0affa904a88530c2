#include <shardgrad/train/plan.h>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/step.h>

namespace shardgrad::train {

fsdp::Plan plan(const Config& config, int ranks, Device device, const std::string& group) {
  fsdp::Plan result;
  auto body = [&](dist::ProcessGroup& world) {
    auto model = make_mlp(config.model);
    auto sharded = fsdp::fully_shard(*model, world, make_sharding(config));
    auto optimizer = make_optimizer(config.optimizer, model->named_parameters());
    auto scaler = make_scaler(config, world);
    int64_t rows = (config.batch + ranks - 1) / ranks;
    TagScope owner(Category::data);
    Tensor x = zeros({rows, config.model.layers.front()}), labels = zeros({rows}, DType::i64);
    TagScope inner(Category::activation);
    fsdp::Plan mine = fsdp::make_plan(*sharded, [&] {
      train_step({config, model, *sharded, *optimizer, scaler}, x, labels, config.batch, false);
    });
    if (world.rank() == 0) result = mine;
  };
  dist::VirtualOptions options{.device = device, .seed = uint64_t(config.seed)};
  options.group.kind = group;
  dist::run_ranks(ranks, body, options);
  return result;
}

}  // namespace shardgrad::train
