#include <shardgrad/fsdp/setup/wrap.h>

#include <algorithm>
#include <map>

#include <shardgrad/core/context.h>

namespace shardgrad::fsdp {
namespace {

// A context's. They are known as long as they exist, so a later module at the same address is not taken for one.
struct ChosenUnits {
  std::vector<std::weak_ptr<const nn::Module>> modules;
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
