#include <shardgrad/fsdp/fairscale.h>

#include <algorithm>
#include <functional>

#include <shardgrad/autograd/match.h>
#include <shardgrad/nn/recompute.h>

namespace shardgrad::fsdp {
namespace {

using Found = std::vector<std::shared_ptr<nn::Module>>;

// Of the modules below `root`, each once, those that an expression matches.
Found matched(nn::Module& root, const std::vector<std::string>& expressions) {
  Expressions compiled("with_wrapped_modules", expressions);
  std::vector<bool> used(expressions.size());
  Found found;
  std::string names;
  std::function<void(nn::Module&, const std::string&)> visit = [&](nn::Module& module, const std::string& prefix) {
    for (const auto& child : module.children()) {
      std::string name = prefix + child.name;
      names += (names.empty() ? "" : ", ") + name;
      bool fits = false;
      for (size_t i = 0; i < used.size(); ++i)
        if (compiled.match(i, name)) fits = used[i] = true;
      if (fits && std::ranges::find(found, child.object) == found.end()) found.push_back(child.object);
      visit(*child.object, name + ".");
    }
  };
  visit(root, "");
  for (size_t i = 0; i < used.size(); ++i)
    SG_CHECK(used[i], "with_wrapped_modules: '", expressions[i], "' matches no module; there are ", names);
  for (const auto& module : found)
    SG_CHECK(!module->only_holds(), "with_wrapped_modules: a ", module->type_name(),
             " is matched, which has no forward: it is never called; match the modules in it");
  return found;
}

}  // namespace

Config FSDPConfig::as_kwargs() const {
  Config config;
  config.strategy = reshard_after_forward ? Strategy::zero3 : Strategy::zero2;
  config.move_params_to_cpu = move_params_to_cpu;
  config.move_grads_to_cpu = move_grads_to_cpu;
  if (mixed_precision) config.param_dtype = DType::f16;
  if (mixed_precision) config.reduce_dtype = DType::f32;
  return config;
}

void with_wrapped_modules(nn::Module& model, const std::vector<std::string>& modules_to_wrap,
                          const std::optional<FSDPConfig>& fsdp_config, bool activation_checkpointing) {
  Found found = matched(model, modules_to_wrap);
  if (fsdp_config)
    for (const auto& module : found) fsdp_config->wrap(nn::Child<nn::Module>(module));
  if (activation_checkpointing) nn::recompute_by_regex(model, modules_to_wrap);
}

}  // namespace shardgrad::fsdp
