#include <shardgrad/train/build.h>

#include <algorithm>

#include <shardgrad/autograd/match.h>
#include <shardgrad/core/context.h>
#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/nn/recompute.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>
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

fsdp::Config make_sharding(const Config& config) {
  fsdp::Config sharding = config.fsdp.options;
  sharding.strategy = fsdp::parse_strategy(config.strategy);
  if (config.fsdp.wrap == "size") sharding.wrap = fsdp::wrap_by_size(config.fsdp.wrap_numel);
  if (config.fsdp.wrap == "types")
    sharding.wrap =
        fsdp::wrap_any({fsdp::wrap_by_type(config.fsdp.wrap_types), fsdp::wrap_by_name(config.fsdp.wrap_names),
                        fsdp::wrap_by_regex(config.fsdp.wrap_regex)});
  return sharding;
}

// A pattern must choose something: the optimizer looks. A model may have no vectors, and no biases: those were the
// default of older runs.
static optim::Rules make_rules(const Config::Optimizer& o, std::span<const NamedParameter> parameters) {
  optim::Rules rules;
  auto add = [&](const std::string& pattern) { rules.push_back({pattern, {.weight_decay = 0}}); };
  for (const std::string& pattern : o.no_decay) {
    bool of_shape = pattern == kVectors, may_choose_nothing = of_shape || pattern == "*.bias";
    if (!may_choose_nothing) add(pattern);
    for (const NamedParameter& parameter : parameters)
      if (of_shape ? parameter.tensor.ndim() == 1 : may_choose_nothing && matches(pattern, parameter.name))
        add(parameter.name);
  }
  return rules;
}

static std::unique_ptr<optim::Optimizer> make_optimizer(const Config::Optimizer& o,
                                                        std::vector<NamedParameter> parameters) {
  optim::Rules rules = make_rules(o, parameters);
  if (o.name == "sgd") {
    optim::SgdOptions options{
        .lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay, .nesterov = o.nesterov};
    return std::make_unique<optim::SGD>(std::move(parameters), options, rules);
  }
  optim::AdamOptions options{o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay};
  if (o.name == "adam") return std::make_unique<optim::Adam>(std::move(parameters), options, rules);
  return std::make_unique<optim::AdamW>(std::move(parameters), options, rules);
}

// Gradients of what no optimizer updates would add up from step to step.
static void check_complete(const std::string& task, const optim::Optimizer& optimizer,
                           std::span<const NamedParameter> parameters) {
  auto has = [](std::span<const NamedParameter> list, const NamedParameter& one) {
    return std::ranges::any_of(list, [&](const NamedParameter& p) { return p.tensor.same_as(one.tensor); });
  };
  for (const NamedParameter& parameter : parameters)
    SG_CHECK(has(optimizer.parameters(), parameter) || !parameter.tensor.requires_grad(), "task '", task,
             "': its optimizer leaves out '", parameter.name,
             "'; give it all parameters, and switch off what is not to ", "be trained with set_requires_grad(false)");
  for (const NamedParameter& parameter : optimizer.parameters())
    SG_CHECK(has(parameters, parameter), "task '", task, "': its optimizer updates '", parameter.name,
             "', which is no parameter of its module; make it of the parameters that configure_optimizers is given, ",
             "those of trainer().model().named_parameters()");
}

Optimizers make_optimizers(const Config& config, Task& task) {
  std::vector<NamedParameter> parameters = task.module().named_parameters();
  bool is_own = config.registry->has_own_optimizer(config.task.name);
  Optimizers made = task.configure_optimizers(parameters);
  SG_CHECK(bool(made.optimizer) == is_own, "task '", config.task.name, "' makes ", is_own ? "no" : "an",
           " optimizer of its own, but is registered with", is_own ? "" : "out", " one (WholeTask::own_optimizer)");
  if (!is_own) return {make_optimizer(config.optimizer, std::move(parameters))};
  check_complete(config.task.name, *made.optimizer, parameters);
  return made;
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
