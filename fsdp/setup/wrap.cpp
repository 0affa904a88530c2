#include <shardgrad/fsdp/setup/wrap.h>

#include <shardgrad/core/context.h>

namespace shardgrad::fsdp {
namespace {

struct Chosen {
  std::weak_ptr<const nn::Module> module;
  std::optional<Config> own;
};
// A context's. They are known as long as they exist, so a later module at the same address is not taken for one.
struct AllChosen {
  std::vector<Chosen> units;
};

constinit thread_local ThreadSetting<bool> wrap_is_enabled{false};

}  // namespace

EnableWrap::EnableWrap(bool on) : scope_(wrap_is_enabled, on) {}

void detail::choose_unit(const std::shared_ptr<nn::Module>& module, const std::optional<Config>& own, When when) {
  SG_CHECK(module, "wrap: an empty module handle; make one with child<M>(…) or nn::make<M>(…) first");
  if (when == When::enabled && !wrap_is_enabled.of(context())) return;
  SG_CHECK(!module->only_holds(), "wrap: a ", module->type_name(),
           " has no forward, so nothing would gather it; wrap the modules in it");
  SG_CHECK(!own || (!own->keeps_params() && own->strategy != Strategy::hybrid), "wrap: a unit of its own options has ",
           "the strategy zero2 or zero3, not ", own ? name_of(own->strategy) : "",
           own && own->keep_params ? " with keep_params" : "",
           "; whether parameters are split at all is the model's choice");
  auto& units = context().slot<AllChosen>().units;
  std::erase_if(units, [](const Chosen& chosen) { return chosen.module.expired(); });
  for (const Chosen& chosen : units)
    SG_CHECK(chosen.module.lock() != module || !(own || chosen.own), "wrap: a ", module->type_name(),
             " is wrapped twice, and with options of its own; wrap a module once");
  units.push_back({module, own});
}

ChosenUnits wrapped_units() {
  ChosenUnits found;
  for (const auto& chosen : context().slot<AllChosen>().units)
    if (auto module = chosen.module.lock()) found.emplace(module.get(), chosen.own);
  return found;
}

}  // namespace shardgrad::fsdp
