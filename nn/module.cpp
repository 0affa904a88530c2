#include <shardgrad/nn/module.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>
#include <unordered_set>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/state_check.h>
#include <shardgrad/core/context.h>

namespace shardgrad::nn {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

Ref<Storage> released_storage(const Shape& shape, DType dtype, Device device, Tag tag) {
  return Storage::make(size_t(shape.numel()) * size_of(dtype), context().backend(device).memory(), tag, true);
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

Tensor Module::add_tensor(EntryList& list, std::string name, const Shape& shape, DType dtype, Category::Kind category,
                          Init init) {
  check_name(name);
  Tensor tensor(released_storage(shape, dtype, context().default_device(), {category, 0}), 0, shape, dtype);
  tensor.set_name(name);
  tensor.storage()->set_note("it has no values yet; call the model once, call materialize(), or shard it");
  init.seed = context().seed();
  list.push_back({name, std::make_shared<Parameter>(Parameter{name, tensor, init, false})});
  return tensor;
}

Tensor Module::param(std::string name, const Shape& shape, Init init, Part part) {
  check_open(name);
  Tensor tensor = add_tensor(parameters_, std::move(name), shape, DType::f32, Category::parameter_shard, init);
  parameters_.back().object->part = part;
  return tensor.set_requires_grad();
}

Tensor Module::buffer(std::string name, const Shape& shape, DType dtype, double value) {
  return add_tensor(buffers_, std::move(name), shape, dtype, Category::other, init::constant(value));
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
  std::shared_ptr<Parameter> kept = find(first), replaced = find(second);
  SG_CHECK(kept && replaced, type_name(), ": tie: '", (kept ? second : first).name(),
           "' is not a parameter of this module or of one below it");
  SG_CHECK(first.shape() == second.shape(), type_name(), ": tie: '", first.name(), "' has shape ", first.shape(), ", '",
           second.name(), "' has ", second.shape());
  for (auto& [name, module] : named_modules())
    for (auto& entry : module->parameters_)
      if (entry.object == replaced) entry.object = kept;
  second = first;
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
std::vector<NamedParameter> Module::named_buffers() { return names_and_tensors(distinct(&Module::buffers_)); }

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

static void give_memory(Storage& storage) {
  if (!storage.resident()) storage.materialize(current_stream(storage.device()));
}

void Parameter::materialize() {
  if (initialised) return;
  give_memory(*tensor.storage());
  fill_range(0, tensor);
  initialised = true;
}

void Parameter::allocate() {
  if (initialised) return;
  give_memory(*tensor.storage());
  initialised = true;
}

void Module::materialize() {
  Module& top = root();
  top.complete_names();
  for (auto& entry : top.state_entries()) entry.object->materialize();
  for (auto& [name, module] : top.named_modules()) {
    module->fills_on_call_ = false;
    module->update_direct();
  }
}

// Gives a parameter or buffer another storage, with its value and gradient if it has them.
static void move(Parameter& parameter, Device device, DType dtype) {
  NoGrad no_grad;
  const Tensor &tensor = parameter.tensor, value = tensor.detach(), grad = tensor.grad();
  Ref<Storage> old = tensor.storage();
  if (old->device() == device && tensor.dtype() == dtype) return;
  TagScope owner(old->tag());
  Tensor::Impl& impl = parameter.tensor.impl();
  impl.storage = parameter.initialised ? value.to(dtype).to(device).storage()
                                       : released_storage(impl.shape, dtype, device, old->tag());
  impl.storage->succeed(*old);
  impl.offset = 0;
  impl.dtype = dtype;
  if (impl.leaf) renew_leaf(tensor);
  if (old->note()) impl.storage->set_note(*old->note());
  if (grad.defined()) leaf_of(tensor).set_grad(grad.to(dtype).to(device));
}

void Module::rehouse(std::optional<Device> device, std::optional<DType> dtype) {
  for (auto& entry : state_entries())
    SG_CHECK(entry.object->tensor.storage()->tag().unit == 0, "to(): '", entry.name,
             "' is sharded; move or convert the model before fully_shard, or let it compute in another dtype with ",
             "Config::param_dtype");
  for (auto& entry : state_entries()) {
    const Storage& old = *entry.object->tensor.storage();
    DType kind = entry.object->tensor.dtype();
    bool trained = old.tag().category == Category::parameter_shard;
    // Running statistics of a 16-bit model stay in f32.
    if (dtype && is_floating(kind)) kind = trained || size_of(*dtype) >= 4 ? *dtype : DType::f32;
    move(*entry.object, device.value_or(old.device()), kind);
  }
}

void Module::to(Device device) { rehouse(device, std::nullopt); }

void Module::to(DType dtype) {
  SG_CHECK(is_floating(dtype), "to(): parameters cannot be of dtype ", dtype);
  rehouse(std::nullopt, dtype);
}

StateDict Module::state_dict() {
  materialize();
  StateDict state;
  for (auto& [name, parameter] : state_entries()) {
    check_whole(name, parameter->tensor.shape(), parameter->part);
    state.emplace(name, parameter->tensor);
  }
  return state;
}

void Module::load_state_dict(const StateDict& state) {
  StateDict own = state_dict();
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
    if (given == state.end()) continue;
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
