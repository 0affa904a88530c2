#include <shardgrad/fsdp/sharded_ddp.h>

#include <map>

namespace shardgrad::fsdp {
namespace {

void check_complete(nn::Module& module, std::span<DeferredOptimizer* const> optimizers) {
  std::map<const Tensor::Impl*, int> updated;  // by how many
  for (const NamedParameter& parameter : module.named_parameters()) updated[&parameter.tensor.impl()] = 0;
  for (const DeferredOptimizer* optimizer : optimizers)
    for (const NamedParameter& parameter : optimizer->parameters()) {
      auto found = updated.find(&parameter.tensor.impl());
      SG_CHECK(found != updated.end(), "ShardedDDP: the optimizer was given '", parameter.name,
               "', which is no parameter of this model; make it with model->named_parameters()");
      ++found->second;
    }
  for (const auto& [name, tensor] : module.named_parameters()) {
    int times = updated[&tensor.impl()];
    SG_CHECK(times <= 1, "ShardedDDP: '", name, "' is in two optimizers; leave it to one");
    SG_CHECK(times == 1 || !tensor.requires_grad(), "ShardedDDP: no optimizer was given '", name,
             "', so no rank would own its gradient; make it with model->named_parameters(), or switch off what is not ",
             "to be trained with set_requires_grad(false)");
  }
}

}  // namespace

optim::Optimizer& DeferredOptimizer::optimizer() const {
  SG_CHECK(made_,
           "OSS: the model is not sharded yet, so there is nothing to update; call ShardedDDP(model, optimizer, ",
           "world) first");
  return *made_;
}

std::shared_ptr<Sharded> shard_with(nn::Module& module, std::vector<DeferredOptimizer*> optimizers,
                                    dist::ProcessGroup& world, Config config) {
  for (const DeferredOptimizer* optimizer : optimizers)
    SG_CHECK(!optimizer->made_, "ShardedDDP: the optimizer is another model's already; make an OSS for each model");
  check_complete(module, optimizers);
  std::shared_ptr<Sharded> sharded = fully_shard(module, world, std::move(config));
  for (DeferredOptimizer* optimizer : optimizers) optimizer->made_ = optimizer->make(optimizer->parameters_);
  return sharded;
}

}  // namespace shardgrad::fsdp
