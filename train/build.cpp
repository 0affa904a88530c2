#include <shardgrad/train/build.h>

#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/nn/activation.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/recompute.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>

namespace shardgrad::train {

nn::Child<nn::Sequential> make_mlp(const Config::Model& model) {
  auto mlp = nn::make<nn::Sequential>();
  size_t count = model.layers.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    bool fused = model.activation == "relu" && i + 1 < count;
    std::string number = std::to_string(i), name = "activation" + number;
    mlp->add_named<nn::Linear>("layer" + number, model.layers[i], model.layers[i + 1], true,
                               fused ? Activation::relu : Activation::none);
    if (i + 1 == count || fused) continue;
    if (model.activation == "gelu")
      mlp->add_named<nn::GELU>(name);
    else if (model.activation == "tanh")
      mlp->add_named<nn::Tanh>(name);
    else
      mlp->add_named<nn::Sigmoid>(name);
  }
  if (!model.recompute.empty()) nn::recompute_by_name(*mlp, model.recompute);
  return mlp;
}

Tensor loss_of(const Config& config, const Tensor& outputs, const Tensor& labels, int64_t count) {
  Tensor y = outputs.to(DType::f32);
  if (config.loss == "cross_entropy") return cross_entropy(y, labels, double(count));
  return mse_loss(y, one_hot(labels, y.size(1)), double(count * y.size(1)));
}

fsdp::Config make_sharding(const Config& config) {
  fsdp::Config sharding = config.fsdp.options;
  sharding.strategy = fsdp::parse_strategy(config.strategy);
  if (config.fsdp.wrap == "size") sharding.wrap = fsdp::wrap_by_size(config.fsdp.wrap_numel);
  return sharding;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Config::Optimizer& o, std::vector<NamedParameter> parameters) {
  optim::Rules rules;
  for (const std::string& pattern : o.no_decay) rules.push_back({pattern, {.weight_decay = 0}});
  if (o.name == "sgd") {
    optim::SgdOptions options{
        .lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay, .nesterov = o.nesterov};
    return std::make_unique<optim::SGD>(std::move(parameters), options, rules);
  }
  optim::AdamOptions options{o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay};
  if (o.name == "adam") return std::make_unique<optim::Adam>(std::move(parameters), options, rules);
  return std::make_unique<optim::AdamW>(std::move(parameters), options, rules);
}

optim::GradScaler make_scaler(const Config& config, dist::ProcessGroup& world) {
  return fsdp::sharded_grad_scaler(world, {.enabled = config.fsdp.options.param_dtype == DType::f16});
}

optim::Schedule make_schedule(const Config::Schedule& schedule, int64_t total) {
  int64_t rest = std::max<int64_t>(1, total - schedule.warmup_steps);
  optim::Schedule after = optim::constant();
  if (schedule.name == "linear") after = optim::linear(rest, schedule.final);
  if (schedule.name == "cosine") after = optim::cosine(rest, schedule.final);
  return optim::warmup(schedule.warmup_steps, after);
}

}  // namespace shardgrad::train
