// Modules for Python's copy and pickle. A module is made again by what made it, and then gets its parts: parameters and
// buffers with their values, modules, hooks. Python copies each object once, so what is tied stays tied.

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

nb::object options_of_recompute(const nn::Module& module) {
  const auto& options = module.recompute_options();
  return options ? nb::object(nb::make_tuple(options->offload_inputs, options->name)) : nb::none();
}

// What kParts gets.
nb::tuple parts_of(nb::handle self) {
  auto& module = nb::cast<nn::Module&>(self);
  return nb::make_tuple(module.training(), options_of_recompute(module), objects_of(self, module.own_parameters()),
                        objects_of(self, module.own_buffers()), self.attr("named_children")(), hooks_of(self));
}

// The attributes of Python's that are no parts.
nb::dict attributes_of(nb::handle self) {
  auto& module = nb::cast<nn::Module&>(self);
  nb::dict attributes = nb::borrow<nb::dict>(dict_of(self).attr("copy")());
  auto leave_out = [&](const std::string& name) { attributes.attr("pop")(name, nb::none()); };
  for (const char* name : {"_tensors", "_forward_hooks", "_made"}) leave_out(name);
  for (Entries entries : {module.own_parameters(), module.own_buffers()})
    for (const auto& entry : entries) leave_out(entry.name);
  for (const auto& child : module.children()) leave_out(child.name);
  return attributes;
}

// The class of C++ and the arguments of its __init__.
nb::object made_by(nb::handle self) {
  nb::dict attributes = dict_of(self);
  return attributes.contains("_made") ? nb::object(attributes["_made"])
                                      : nb::make_tuple(nb::type<nn::Module>(), nb::dict());
}

nb::tuple reduced(nb::handle self) {
  auto& module = nb::cast<nn::Module&>(self);
  check_copyable(module);
  {
    Wait wait;
    module.materialize();
  }
  nb::object made = made_by(self);
  nb::dict parts;
  parts[kParts] = parts_of(self);
  return nb::make_tuple(nb::module_::import_("shardgrad._results").attr("remake_module"),
                        nb::make_tuple(self.type(), made[0], made[1]), nb::make_tuple(attributes_of(self), parts));
}

// A second module with the same parts.
nb::object copied(nb::handle self) {
  auto* own = dynamic_cast<PythonModule*>(nb::cast<nn::Module*>(self));
  SG_CHECK(own, "copy.copy: a ", nb::cast<nn::Module&>(self).type_name(),
           " of the library shares its parameters with no ",
           "second one; call it twice, or make a copy with copy.deepcopy");
  nb::object copy =
      nb::module_::import_("shardgrad._results").attr("remake_module")(self.type(), nb::type<nn::Module>(), nb::dict());
  auto& made = dynamic_cast<PythonModule&>(nb::cast<nn::Module&>(copy));
  made.train(own->training());
  made.share_parts(*own);
  dict_of(copy).attr("update")(dict_of(self));
  dict_of(copy)["_tensors"] = dict_of(self).attr("get")("_tensors", nb::dict()).attr("copy")();
  set_hooks(copy, hooks_of(self).attr("copy")());
  return copy;
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
  auto* own = dynamic_cast<PythonModule*>(&module);
  if (own) own->param(name, given.shape(), nn::init::zeros());
  if (!given.entry) {
    given.entry = named(module.own_parameters(), name);
    take_over(*given.entry, given);
  } else if (own) {  // tied to another module's, which has it already
    Tensor second = named(module.own_parameters(), name)->tensor;
    module.tie(given.entry, second);
  } else {
    self.attr(name.c_str()) = object;
  }
  set_object(self, name, object);
  if (own) set_plainly(self, name, object);
}

void set_buffer(nb::handle self, const std::string& name, nb::handle object) {
  auto& module = nb::cast<nn::Module&>(self);
  auto& given = nb::cast<Tensor&>(object);
  auto* own = dynamic_cast<PythonModule*>(&module);
  if (own) own->buffer(name, given.shape(), given.dtype());
  take_over(*named(module.own_buffers(), name), given);
  set_object(self, name, object);
  if (own) set_plainly(self, name, object);
}

}  // namespace

void set_parts(nb::handle self, nb::handle parts) {
  auto& module = nb::cast<nn::Module&>(self);
  module.train(nb::cast<bool>(parts[0]));  // itself: it has no modules yet
  if (!parts[1].is_none())
    module.set_recompute(RecomputeOptions{nb::cast<bool>(parts[1][0]), nb::cast<std::string>(parts[1][1])});
  for (nb::handle each : parts[2]) set_parameter(self, nb::cast<std::string>(each[0]), each[1]);
  for (nb::handle each : parts[3]) set_buffer(self, nb::cast<std::string>(each[0]), each[1]);
  for (nb::handle each : parts[4]) nb::setattr(self, each[0], each[1]);
  set_hooks(self, nb::borrow(parts[5]));
}

void bind_module_copies(ModuleClass& module) { module.def("__reduce__", reduced).def("__copy__", copied); }

}  // namespace shardgrad::python
