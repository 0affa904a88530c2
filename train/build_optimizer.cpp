// What updates a run's parameters, as the configuration says.

#include <algorithm>

#include <shardgrad/autograd/match.h>
#include <shardgrad/nn/embedding.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/composed.h>
#include <shardgrad/optim/muon.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/registry.h>

namespace shardgrad::train {
namespace {

using Parameters = std::vector<NamedParameter>;

bool has(std::span<const NamedParameter> list, const NamedParameter& one) {
  return std::ranges::any_of(list, [&](const NamedParameter& p) { return p.tensor.same_as(one.tensor); });
}

bool matches_any(std::string_view pattern, const Parameters& parameters) {
  return std::ranges::any_of(parameters, [&](const NamedParameter& p) { return matches(pattern, p.name); });
}

// For those of `all` that one optimizer updates. A pattern must choose something: the optimizer looks. A model may have
// no vectors, and no biases: those were the default of older runs.
optim::Rules make_rules(const Config::Optimizer& o, const Parameters& own, const Parameters& all) {
  optim::Rules rules;
  auto add = [&](const std::string& pattern) { rules.push_back({pattern, {.weight_decay = 0}}); };
  for (const std::string& pattern : o.no_decay) {
    bool of_shape = pattern == kVectors, may_choose_nothing = of_shape || pattern == "*.bias";
    if (!may_choose_nothing && (matches_any(pattern, own) || !matches_any(pattern, all))) add(pattern);
    for (const NamedParameter& parameter : own)
      if (of_shape ? parameter.tensor.ndim() == 1 : may_choose_nothing && matches(pattern, parameter.name))
        add(parameter.name);
  }
  return rules;
}

optim::AdamOptions adam_options(const Config::Optimizer& o) {
  return {o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay, o.stochastic_rounding};
}

std::unique_ptr<optim::Optimizer> make_adamw(const Config::Optimizer& o, const Parameters& own, const Parameters& all) {
  return std::make_unique<optim::AdamW>(own, adam_options(o), make_rules(o, own, all));
}

// The tables of embeddings, also where another layer has one for its own.
Parameters tables_of(nn::Module& model) {
  Parameters tables;
  for (auto& [name, module] : model.named_modules())
    if (auto* embedding = dynamic_cast<nn::Embedding*>(module)) tables.push_back({name, embedding->weight});
  return tables;
}

// Muon for the matrices but those that are named, AdamW for the rest.
Optimizers make_muon(const Config::Optimizer& o, nn::Module& model, const Parameters& all) {
  Parameters matrices, rest, tables = tables_of(model);
  auto is_named = [&](const NamedParameter& parameter) {
    return std::ranges::any_of(o.adamw, [&](const std::string& pattern) {
      return pattern == kEmbeddings ? has(tables, parameter) : matches(pattern, parameter.name);
    });
  };
  for (const std::string& pattern : o.adamw)
    SG_CHECK(pattern == kEmbeddings || matches_any(pattern, all), "optimizer.adamw: '", pattern,
             "' is no parameter of the model; the first one is '", all.at(0).name, "'");
  for (const NamedParameter& parameter : all)
    (parameter.tensor.ndim() == 2 && !is_named(parameter) ? matrices : rest).push_back(parameter);
  auto is_trained = [](const NamedParameter& parameter) { return parameter.tensor.requires_grad(); };
  SG_CHECK(std::ranges::any_of(matrices, is_trained),
           "optimizer.name is muon, and the model has no matrix to train that ",
           "optimizer.adamw leaves to it; choose adamw");
  optim::MuonOptions options{.lr = o.lr,
                             .weight_decay = o.weight_decay,
                             .momentum = o.muon_momentum,
                             .adjust_lr = optim::MuonScale::match_rms_adamw};
  Optimizers made{std::make_unique<optim::Muon>(matrices, options, make_rules(o, matrices, all))};
  if (std::ranges::any_of(rest, is_trained)) made.beside = make_adamw(o, rest, all);
  return made;
}

Optimizers make_named(const Config::Optimizer& o, nn::Module& model, const Parameters& all) {
  if (o.name == "muon") return make_muon(o, model, all);
  if (o.name == "adamw") return {make_adamw(o, all, all)};
  optim::Rules rules = make_rules(o, all, all);
  if (o.name == "lion") {
    optim::LionOptions options{o.lr, o.lion_betas[0], o.lion_betas[1], o.weight_decay};
    return {std::make_unique<optim::Lion>(all, options, rules)};
  }
  if (o.name == "adam") return {std::make_unique<optim::Adam>(all, adam_options(o), rules)};
  optim::SgdOptions options{.lr = o.lr,
                            .momentum = o.momentum,
                            .weight_decay = o.weight_decay,
                            .nesterov = o.nesterov,
                            .stochastic_rounding = o.stochastic_rounding};
  return {std::make_unique<optim::SGD>(all, options, rules)};
}

// Gradients of what no optimizer updates would add up from step to step.
void check_complete(const std::string& task, const Optimizers& made, const Parameters& parameters) {
  Parameters updated;
  for (const optim::Optimizer* optimizer : made.all())
    updated.insert(updated.end(), optimizer->parameters().begin(), optimizer->parameters().end());
  for (const NamedParameter& parameter : parameters)
    SG_CHECK(has(updated, parameter) || !parameter.tensor.requires_grad(), "task '", task,
             "': its optimizer leaves out '", parameter.name,
             "'; give it all parameters, and switch off what is not to ", "be trained with set_requires_grad(false)");
  for (const NamedParameter& parameter : updated)
    SG_CHECK(has(parameters, parameter), "task '", task, "': its optimizer updates '", parameter.name,
             "', which is no parameter of its module; make it of the parameters that configure_optimizers is given, ",
             "those of trainer().model().named_parameters()");
}

}  // namespace

Optimizers make_optimizers(const Config& config, Task& task) {
  Parameters parameters = task.module().named_parameters();
  bool is_own = config.registry->has_own_optimizer(config.task.name);
  Optimizers made = task.configure_optimizers(parameters);
  SG_CHECK(bool(made.optimizer) == is_own, "task '", config.task.name, "' makes ", is_own ? "no" : "an",
           " optimizer of its own, but is registered with", is_own ? "" : "out", " one (WholeTask::own_optimizer)");
  if (!is_own) return make_named(config.optimizer, task.module(), parameters);
  check_complete(config.task.name, made, parameters);
  return made;
}

}  // namespace shardgrad::train
