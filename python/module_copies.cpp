// Modules for Python's copy and pickle. A module is made again by what made it, and then gets its parts: parameters and
// buffers with their values, modules, hooks. Python copies each object once, so what is tied stays tied. Attributes go
// by __getstate__ and __setstate__, which a class may have of its own.

#include <set>

#include <shardgrad/nn/nn.h>
#include <shardgrad/python/module.h>

namespace shardgrad::python {
namespace {

using Entries = std::span<const nn::Module::Entry<nn::Parameter>>;

nb::dict dict_of(nb::handle self) { return nb::borrow<nb::dict>(self.attr("__dict__")); }

void check_copyable(nn::Module& module) {
  for (const auto& entry : module.parameter_entries())
    SG_CHECK(entry.object->tensor.storage()->tag().unit == 0, "copy and pickle: '", entry.name, "' of this ",
             module.type_name(), " is sharded, and no rank has all of it; make another module, and load ",
             "sharded.full_state_dict(rank0_only=False) into it");
  for (auto& [name, each] : module.named_modules()) {
    auto* norm = dynamic_cast<nn::BatchNorm1d*>(each);
    SG_CHECK(!norm || !norm->synchronised(), "copy and pickle: '", name, "' of this ", module.type_name(),
             " takes its statistics from all ranks, whose group cannot be copied; copy before convert_sync_batchnorm");
  }
}

nb::list objects_of(nb::handle self, Entries entries) {
  nb::list found;
  for (const auto& entry : entries)
    found.append(nb::make_tuple(entry.name, object_of(self, entry.name, entry.object->tensor)));
  return found;
}

nb::list buffers_of(nb::handle self, Entries entries) {
  nb::list found;
  for (const auto& entry : entries)
    found.append(
        nb::make_tuple(entry.name, object_of(self, entry.name, entry.object->tensor), entry.object->persistent));
  return found;
}

nb::object options_of_recompute(const nn::Module& module) {
  const auto& options = module.recompute_options();
  return options ? nb::object(nb::make_tuple(options->offload_inputs, options->name)) : nb::none();
}

// What set_parts takes.
nb::tuple parts_of(nb::handle self) {
  auto& module = nb::cast<nn::Module&>(self);
  return nb::make_tuple(module.training(), options_of_recompute(module), objects_of(self, module.own_parameters()),
                        buffers_of(self, module.own_buffers()), nb::list(self.attr("named_children")()),
                        hooks_of(self));
}

std::vector<std::string> names_of_parts(const nn::Module& module) {
  std::vector<std::string> names;
  for (Entries entries : {module.own_parameters(), module.own_buffers()})
    for (const auto& entry : entries) names.push_back(entry.name);
  for (const auto& child : module.children()) names.push_back(child.name);
  return names;
}

// The attributes of Python's that are no parts.
nb::dict attributes_of(nb::handle self) {
  auto& module = nb::cast<nn::Module&>(self);
  nb::dict attributes = nb::borrow<nb::dict>(dict_of(self).attr("copy")());
  for (const char* name : {"_tensors", "_forward_hooks", "_made"}) attributes.attr("pop")(name, nb::none());
  for (const std::string& name : names_of_parts(module)) attributes.attr("pop")(name, nb::none());
  return attributes;
}

// What a class of Python's may add to, or leave out of.
void set_state(nb::handle self, nb::handle state) {
  SG_CHECK(nb::isinstance<nb::dict>(state), "__setstate__: the state of this ", nb::cast<nn::Module&>(self).type_name(),
           " is a dict of its attributes, not ", nb::repr(state).c_str(),
           "; a class whose __getstate__ gives something else has its own __setstate__");
  dict_of(self).attr("update")(state);
}

// The class of C++ and the arguments of its __init__.
nb::object made_by(nb::handle self) {
  nb::dict attributes = dict_of(self);
  return attributes.contains("_made") ? nb::object(attributes["_made"])
                                      : nb::make_tuple(nb::type<nn::Module>(), nb::dict());
}

nb::tuple reduced_module(nb::handle self) {
  auto& module = nb::cast<nn::Module&>(self);
  check_copyable(module);
  {
    Wait wait;
    module.materialize();
  }
  nb::object made = made_by(self);
  nb::object results = nb::module_::import_("shardgrad._results");
  return nb::make_tuple(results.attr("remake_module"), nb::make_tuple(self.type(), made[0], made[1]),
                        nb::make_tuple(parts_of(self), self.attr("__getstate__")()), nb::none(), nb::none(),
                        results.attr("restore_module"));
}

void share_parts(nn::Module& made, const nn::Module& module) {
  for (const std::string& name : names_of_parts(made))
    if (Tensor* member = member_of(made, name)) *member = Tensor();
  made.train(module.training());  // itself: it has no modules yet
  made.share_parts(module);
  for (Entries entries : {made.own_parameters(), made.own_buffers()})
    for (const auto& entry : entries)
      if (Tensor* member = member_of(made, entry.name)) *member = entry.object->tensor;
  made.set_recompute(module.recompute_options());
}

// A second module with the same parts.
nb::object copied_module(nb::handle self) {
  auto& module = nb::cast<nn::Module&>(self);
  check_copyable(module);
  if (!dynamic_cast<PythonModule*>(&module)) {  // its parameters begin with the names that they have here
    Wait wait;
    module.materialize();
  }
  parts_of(self);  // Python's objects of all of them, which the copy has, too
  nb::object results = nb::module_::import_("shardgrad._results"), made = made_by(self);
  nb::object copy = results.attr("remake_module")(self.type(), made[0], made[1]);
  share_parts(nb::cast<nn::Module&>(copy), module);
  for (const std::string& name : names_of_parts(module))
    if (dict_of(self).contains(name.c_str())) dict_of(copy)[name.c_str()] = dict_of(self)[name.c_str()];
  results.attr("set_state")(copy, self.attr("__getstate__")());
  dict_of(copy)["_tensors"] = dict_of(self).attr("get")("_tensors", nb::dict()).attr("copy")();
  set_hooks(copy, hooks_of(self).attr("copy")());
  return copy;
}

// As pickle does, which knows what to call for a module's state.
nb::object deep_copied_module(nb::handle self, nb::dict memo) {
  nb::object copy = nb::module_::import_("copy").attr("deepcopy"), state = self.attr("__reduce_ex__")(4);
  if (nb::len(state) < 6)  // a class's own __reduce__
    return nb::module_::import_("copy").attr("_reconstruct")(self, memo, *nb::borrow<nb::tuple>(state));
  nb::object made = state[0](*nb::borrow<nb::tuple>(copy(state[1], memo)));
  memo[nb::int_(uintptr_t(self.ptr()))] = made;
  nb::module_::import_("shardgrad._results").attr("restore_module")(made, copy(state[2], memo));
  return made;
}

const std::shared_ptr<nn::Parameter>& named(Entries entries, const std::string& name) {
  for (const auto& entry : entries)
    if (entry.name == name) return entry.object;
  fail("a pickled module has '", name, "', which its class does not make any more");
}

// What `given` was a copy for is this parameter from now on, also where other objects hold it.
void take_over(nn::Parameter& entry, Tensor& given) {
  SG_CHECK(entry.tensor.shape() == given.shape(), "a pickled module has '", entry.tensor.name(), "' of shape ",
           given.shape(), ", its class makes it ", entry.tensor.shape());
  bool trained = given.requires_grad();
  Tensor grad = given.grad();
  entry.take(given);
  entry.initialised = true;
  entry.tensor.set_requires_grad(trained);
  if (grad.defined()) entry.tensor.set_grad(grad);
  given = entry.tensor;
}

void set_parameter(nb::handle self, const std::string& name, nb::handle object) {
  auto& module = nb::cast<nn::Module&>(self);
  auto& given = nb::cast<ParameterTensor&>(object);
  if (auto* own = dynamic_cast<PythonModule*>(&module)) {
    register_parameter(*own, name, given);
    set_plainly(self, name, object);
  } else {
    Tensor* member = member_of(module, name);
    SG_CHECK(member, "a pickled ", module.type_name(), " has '", name, "', which its class does not make any more");
    SG_CHECK(!member->defined() || member->shape() == given.shape(), "a pickled ", module.type_name(), " has '", name,
             "' of shape ", given.shape(), ", its class makes it ", *member);
    register_parameter(module, name, given);
  }
  set_object(self, name, object);
}

// Those that were there only when the module was made are gone.
void set_parameters(nb::handle self, nb::handle named_parameters) {
  std::set<std::string> names;
  for (nb::handle each : named_parameters) names.insert(nb::cast<std::string>(each[0]));
  Entries made = nb::cast<nn::Module&>(self).own_parameters();
  for (const auto& entry : std::vector(made.begin(), made.end()))
    if (!names.contains(entry.name)) assign_parameter(self, entry.name, nb::none());
  for (nb::handle each : named_parameters) set_parameter(self, nb::cast<std::string>(each[0]), each[1]);
}

void set_buffer(nb::handle self, const std::string& name, nb::handle object, bool persistent) {
  auto& module = nb::cast<nn::Module&>(self);
  auto& given = nb::cast<Tensor&>(object);
  auto* own = dynamic_cast<PythonModule*>(&module);
  if (own) own->buffer(name, given.shape(), given.dtype());
  const std::shared_ptr<nn::Parameter>& entry = named(module.own_buffers(), name);
  entry->persistent = persistent;
  take_over(*entry, given);
  set_object(self, name, object);
  if (own) set_plainly(self, name, object);
}

// In a module that remake_module has made.
void set_parts(nb::handle self, nb::handle parts) {
  auto& module = nb::cast<nn::Module&>(self);
  module.train(nb::cast<bool>(parts[0]));  // itself: it has no modules yet
  if (!parts[1].is_none())
    module.set_recompute(RecomputeOptions{nb::cast<bool>(parts[1][0]), nb::cast<std::string>(parts[1][1])});
  set_parameters(self, parts[2]);
  for (nb::handle each : parts[3])  // pickles of before there were others have pairs
    set_buffer(self, nb::cast<std::string>(each[0]), each[1], nb::len(each) < 3 || nb::cast<bool>(each[2]));
  for (nb::handle each : parts[4]) nb::setattr(self, each[0], each[1]);
  set_hooks(self, nb::borrow(parts[5]));
}

}  // namespace

void bind_module_copies(ModuleClass& module) {
  module.def("__reduce__", reduced_module)
      .def("__copy__", copied_module)
      .def("__deepcopy__", deep_copied_module, "memo"_a)
      .def("__getstate__", attributes_of, "Attributes that are no parts, which copies have by themselves.")
      .def("__setstate__", set_state, "state"_a.none(), "Takes such attributes.")
      .def("_set_parts", set_parts);
}

}  // namespace shardgrad::python
