#include <shardgrad/train/plan.h>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/virtual_ranks.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/train/build.h>

namespace shardgrad::train {

fsdp::Plan plan(const Config& config, int ranks, Device device, const std::string& group) {
  fsdp::Plan result;
  auto body = [&](dist::ProcessGroup& world) {
    auto model = make_mlp(config.model);
    auto sharded = fsdp::fully_shard(*model, world, make_sharding(config));
    auto optimizer = make_optimizer(config.optimizer, model->named_parameters());
    int64_t rows = (config.batch + ranks - 1) / ranks;
    TagScope owner(Category::data);
    Tensor x = zeros({rows, config.model.layers.front()}), labels = zeros({rows}, DType::i64);
    TagScope inner(Category::activation);
    fsdp::Plan mine = fsdp::make_plan(*sharded, [&] {
      loss_of(config, model(x), labels, config.batch).backward();
      if (config.clip_grad_norm > 0) fsdp::clip_grad_norm(*sharded, config.clip_grad_norm);
      optimizer->step();
      optimizer->zero_grad();
    });
    if (world.rank() == 0) result = mine;
  };
  dist::VirtualOptions options{.device = device, .seed = uint64_t(config.seed)};
  options.group.kind = group;
  dist::run_ranks(ranks, body, options);
  return result;
}

}  // namespace shardgrad::train
