#include <shardgrad/fsdp/setup/wrap.h>

#include <algorithm>
#include <map>
#include <set>

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

int64_t parameters_in(nn::Module& module) {
  int64_t numel = 0;
  for (const auto& own : module.own_parameters()) numel += own.object->tensor.numel();
  for (const auto& child : module.children()) numel += parameters_in(*child.object);
  return numel;
}

// The modules that are called and that `module` holds, itself or through ones that only hold others: their parameters.
using Called = std::map<nn::Module*, int64_t>;
void add_called(nn::Module& module, bool in_list, Called& listed, Called& beside) {
  for (const auto& child : module.children())
    if (child.object->only_holds())
      add_called(*child.object, true, listed, beside);
    else
      (in_list ? listed : beside)[child.object.get()] = parameters_in(*child.object);
}

// A small child beside a list of blocks is not worth collectives of its own. The last norm of a language model would
// cost a block's, too: it is what ends forward, so the block before it would be released there and gathered again.
constexpr int64_t kSmall = 8;  // times smaller than the largest block

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

WrapPolicy wrap_children_of(nn::Module& root) {
  Called listed, beside;
  add_called(root, false, listed, beside);
  int64_t largest = 0;
  for (const auto& [block, numel] : listed) largest = std::max(largest, numel);
  if (root.only_holds()) largest = 0;  // it is never called, and nothing would gather its unit
  std::erase_if(beside, [&](const auto& child) { return child.second < largest / kSmall; });
  std::set<const nn::Module*> units;
  for (const Called* all : {&listed, &beside})
    for (const auto& [module, numel] : *all) units.insert(module);
  return [units](const nn::Module& module, const std::string&, int64_t) { return units.contains(&module); };
}

}  // namespace shardgrad::fsdp
