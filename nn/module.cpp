#include <shardgrad/nn/module.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>
#include <unordered_set>

#include <shardgrad/autograd/state_check.h>
#include <shardgrad/core/context.h>

namespace shardgrad::nn {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void walk(Module& module, const std::string& name, std::unordered_set<Module*>& seen,
          std::vector<std::pair<std::string, Module*>>& found) {
  if (!seen.insert(&module).second) return;
  found.emplace_back(name, &module);
  for (const auto& child : module.children()) walk(*child.object, join(name, child.name), seen, found);
}

}  // namespace

Module::~Module() {
  for (auto& child : children_)
    if (child.object->parent_ == this) child.object->parent_ = nullptr;
}

std::string Module::type_name() const {
  int status = 0;
  char* text = abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : typeid(*this).name();
  std::free(text);
  size_t scope = name.substr(0, name.find('<')).rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

// --- registration --------------------------------------------------------------------------------------------------

void Module::check_name(const std::string& name) const {
  auto taken = [&](const auto& list) {
    return std::ranges::any_of(list, [&](const auto& entry) { return entry.name == name; });
  };
  SG_CHECK(!name.empty() && name.find('.') == std::string::npos, type_name(), ": '", name,
           "' cannot be a name within a module; use a word without dots");
  SG_CHECK(!taken(parameters_) && !taken(buffers_) && !taken(children_), type_name(), ": there are two things named '",
           name, "'; rename one");
}

void Module::check_open(const std::string& name) const {
  SG_CHECK(!sealed_, type_name(), ": '", name, "' comes after fully_shard, and no rank would know of the others' ",
           "gradients for it; build the whole model first, then shard it, then make the optimizer");
}

void Module::seal() {
  for (auto& [name, module] : named_modules()) module->sealed_ = true;
}

Tensor Module::param(std::string name, const Shape& shape, Init init, Part part) {
  check_open(name);
  Tensor tensor = add_tensor(parameters_, std::move(name), shape, DType::f32, Category::parameter_shard, init);
  parameters_.back().object->part = part;
  return tensor.set_requires_grad();
}

Tensor Module::buffer(std::string name, const Shape& shape, DType dtype, double value) {
  return add_tensor(buffers_, std::move(name), shape, dtype, Category::buffer, init::constant(value));
}

void Module::add_child(std::string name, std::shared_ptr<Module> module) {
  check_name(name);
  SG_CHECK(module, type_name(), ": the module shared as '", name, "' is empty");
  for (auto& [below, each] : module->named_modules())
    SG_CHECK(each != this, type_name(), ": '", name, "' would contain itself");
  for (const NamedParameter& added : sealed_ ? module->named_parameters() : std::vector<NamedParameter>())
    if (added.tensor.storage()->tag().unit == 0) check_open(join(name, added.name));
  if (sealed_) module->seal();
  if (!module->parent_) module->parent_ = this;
  children_.push_back({std::move(name), std::move(module)});
}

std::shared_ptr<Parameter> Module::find(const Tensor& tensor) {
  for (auto& [name, module] : named_modules())
    for (auto& entry : module->parameters_)
      if (entry.object->tensor.same_as(tensor)) return entry.object;
  return nullptr;
}

void Module::tie(const Tensor& first, Tensor& second) {
  std::shared_ptr<Parameter> kept = find(first);
  SG_CHECK(kept && find(second), type_name(), ": tie: '", (kept ? second : first).name(),
           "' is not a parameter of this module or of one below it");
  tie(kept, second);
}

void Module::tie(const std::shared_ptr<Parameter>& first, Tensor& second) {
  std::shared_ptr<Parameter> replaced = root().find(second);
  SG_CHECK(replaced, type_name(), ": tie: '", second.name(), "' is not a parameter of this model");
  SG_CHECK(first->tensor.shape() == second.shape(), type_name(), ": tie: '", first->tensor.name(), "' has shape ",
           first->tensor.shape(), ", '", second.name(), "' has ", second.shape());
  for (auto& [name, module] : root().named_modules())
    for (auto& entry : module->parameters_)
      if (entry.object == replaced) entry.object = first;
  second = first->tensor;
}

void Module::set_parameter(const std::string& name, std::shared_ptr<Parameter> parameter) {
  check_open(name);
  auto place = std::ranges::find(parameters_, name, &Entry<Parameter>::name);
  if (parameter) parameter->replaced = false;
  if (parameter && !parameter->initialised) fills_on_call_ = true, update_direct();
  if (place == parameters_.end()) {
    if (!parameter) return;
    check_name(name);
    parameters_.push_back({name, std::move(parameter)});
  } else if (parameter) {
    std::shared_ptr<Parameter> before = std::exchange(place->object, std::move(parameter));
    before->replaced = !root().find(before->tensor);
  } else {
    parameters_.erase(place);
  }
}

void Module::drop_children() {
  SG_CHECK(!sealed_, type_name(), ": the modules of a sharded model stay where they are; build the whole model first, ",
           "then shard it");
  for (auto& child : children_)
    if (child.object->parent_ == this) child.object->parent_ = nullptr;
  children_.clear();
}

void Module::share_parts(const Module& other) {
  parameters_ = other.parameters_;
  buffers_ = other.buffers_;
  children_ = other.children_;
}

// --- names ---------------------------------------------------------------------------------------------------------

Module& Module::root() {
  Module* top = this;
  while (top->parent_) top = top->parent_;
  return *top;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::unordered_set<Module*> seen;
  std::vector<std::pair<std::string, Module*>> found;
  walk(*this, "", seen, found);
  return found;
}

std::vector<Module::Entry<Parameter>> Module::distinct(EntryList Module::*list) {
  std::unordered_set<Parameter*> seen;
  std::vector<Entry<Parameter>> found;
  for (auto& [prefix, module] : named_modules())
    for (auto& entry : module->*list)
      if (seen.insert(entry.object.get()).second) found.push_back({join(prefix, entry.name), entry.object});
  return found;
}

std::vector<Module::Entry<Parameter>> Module::state_entries() {
  std::vector<Entry<Parameter>> found = distinct(&Module::parameters_);
  for (auto& entry : distinct(&Module::buffers_)) found.push_back(std::move(entry));
  return found;
}

static std::vector<NamedParameter> names_and_tensors(const std::vector<Module::Entry<Parameter>>& entries) {
  std::vector<NamedParameter> named;
  for (const auto& entry : entries) named.push_back({entry.name, entry.object->tensor, entry.object->part});
  return named;
}

std::vector<NamedParameter> Module::named_parameters() { return names_and_tensors(distinct(&Module::parameters_)); }
std::vector<Tensor> Module::parameters() {
  std::vector<Tensor> tensors;
  for (const NamedParameter& each : named_parameters()) tensors.push_back(each.tensor);
  return tensors;
}
std::vector<NamedParameter> Module::named_buffers() { return names_and_tensors(distinct(&Module::buffers_)); }
std::vector<NamedParameter> Module::saved_buffers() {
  std::vector<Entry<Parameter>> entries = distinct(&Module::buffers_);
  std::erase_if(entries, [](const Entry<Parameter>& entry) { return !entry.object->persistent; });
  return names_and_tensors(entries);
}

std::map<std::string, std::string> Module::aliases() {
  std::map<const Parameter*, std::string> listed;
  for (auto& entry : state_entries()) listed[entry.object.get()] = entry.name;
  std::map<std::string, std::string> found;
  std::function<void(Module&, const std::string&)> visit = [&](Module& module, const std::string& prefix) {
    for (auto* list : {&module.parameters_, &module.buffers_})
      for (auto& entry : *list) {
        std::string name = join(prefix, entry.name);
        if (const std::string& first = listed[entry.object.get()]; first != name) found[name] = first;
      }
    for (auto& child : module.children_) visit(*child.object, join(prefix, child.name));
  };
  visit(*this, "");
  return found;
}

void Module::complete_names() {
  Module& top = root();
  for (auto& [name, module] : top.named_modules()) module->full_name_ = name;
  for (auto& entry : top.state_entries()) {
    entry.object->full_name = entry.name;
    entry.object->tensor.set_name(entry.name);
  }
}

// --- state ---------------------------------------------------------------------------------------------------------

void Module::materialize() {
  Module& top = root();
  std::lock_guard lock(top.filling_);
  top.fill();
}

void Module::fill() {
  complete_names();
  for (auto& entry : state_entries()) entry.object->materialize();
  for (auto& [name, module] : named_modules()) {
    module->fills_on_call_ = false;
    module->update_direct();
  }
}

StateDict Module::state_dict() {
  materialize();
  StateDict state;
  for (auto& [name, parameter] : state_entries()) {
    if (!parameter->persistent) continue;
    check_whole(name, parameter->tensor.shape(), parameter->part);
    state.emplace(name, parameter->tensor);
  }
  return state;
}

void Module::load_state_dict(const StateDict& state) { load(state_dict(), state); }

OtherNames Module::load_known(const StateDict& state) {
  StateDict own = state_dict(), known;
  std::map<std::string, std::string> tied = aliases();
  OtherNames others;
  for (auto& [name, tensor] : state) {
    auto second = tied.find(name);
    bool is_second = second != tied.end() && own.contains(second->second);
    if (own.contains(name) || is_second)
      known[name] = tensor;
    else
      others.unexpected.push_back(name);
    if (is_second && !state.contains(second->second)) known[second->second] = tensor;
  }
  for (auto& [name, tensor] : own)
    if (!known.contains(name)) others.missing.push_back(name);
  for (const std::string& name : others.missing) own.erase(name);
  load(own, known);
  return others;
}

void Module::load(const StateDict& own, const StateDict& state) {
  StateCheck check(state);
  std::string others;
  for (auto& [name, tensor] : own) {
    check.expect(name, tensor.shape(), tensor.dtype());
    if (const Storage& storage = *tensor.storage(); !storage.resident())
      others += concat("\n  '", name, "' is not in memory: ", storage.note() ? *storage.note() : "");
    auto given = state.find(name);
    if (given != state.end() && given->second.device() == kMeta && tensor.device() != kMeta)
      others += concat("\n  '", name, "' was given on device meta, where it has no values");
  }
  for (auto& [name, first] : aliases()) {
    auto given = state.find(name), tied = state.find(first);
    if (given == state.end() || !own.contains(first)) continue;
    check.expect(name, own.at(first).shape(), own.at(first).dtype());
    if (tied != state.end() && values_differ(given->second, tied->second))
      others += concat("\n  '", name, "' was given other values than '", first, "', to which it is tied");
  }
  others = check.faults() + others;
  SG_CHECK(others.empty(), "load_state_dict: this is not a state of ", type_name(), "; nothing was loaded:", others);
  for (auto& [name, tensor] : own) copy_into(tensor, state.at(name));
}

void Module::train(bool on) {
  for (auto& [name, module] : named_modules()) module->training_ = on;
}

void Module::zero_grad() {
  for (const NamedParameter& parameter : named_parameters()) parameter.tensor.zero_grad();
}

}  // namespace shardgrad::nn
