#include <shardgrad/fsdp/setup/wrap.h>

#include <shardgrad/core/context.h>

namespace shardgrad::fsdp {
namespace {

// A context's. They are known as long as they exist, so a later module at the same address is not taken for one.
struct ChosenUnits {
  std::vector<std::weak_ptr<const nn::Module>> modules;
};

constinit thread_local ThreadSetting<bool> wrap_is_enabled{false};

}  // namespace

EnableWrap::EnableWrap(bool on) : scope_(wrap_is_enabled, on) {}

void detail::choose_unit(const std::shared_ptr<nn::Module>& module) {
  SG_CHECK(module, "wrap: an empty module handle; make one with child<M>(…) or nn::make<M>(…) first");
  if (!wrap_is_enabled.of(context())) return;
  SG_CHECK(!module->only_holds(), "wrap: a ", module->type_name(),
           " has no forward, so nothing would gather it; wrap the modules in it");
  auto& modules = context().slot<ChosenUnits>().modules;
  std::erase_if(modules, [](const auto& chosen) { return chosen.expired(); });
  modules.push_back(module);
}

std::set<const nn::Module*> wrapped_modules() {
  std::set<const nn::Module*> found;
  for (const auto& chosen : context().slot<ChosenUnits>().modules)
    if (auto module = chosen.lock()) found.insert(module.get());
  return found;
}

}  // namespace shardgrad::fsdp
