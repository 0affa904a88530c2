// shardgrad.nn.Module: what all modules have. Of one of Python's, parameters, names, hooks and sharding are C++'s, and
// the call is made here.

#include <set>
#include <sstream>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/python/call.h>
#include <shardgrad/python/module.h>

namespace shardgrad::python {
namespace {

nb::object run_forward(nn::Module& module, nb::handle self, nb::object arguments) {
  nb::object forward = self.attr("forward");
  if (!module.recompute_options()) return call_packed(forward, arguments);
  // `forward` holds the module as long as it may run again.
  auto check = [&module, training = module.training()] {
    SG_CHECK(module.training() == training, "recompute of '", module.full_name(), "', a ", module.type_name(),
             ": it was switched between train() and eval() before backward ran it again");
  };
  return checkpointed(*module.recompute_options(), std::move(forward), std::move(arguments), check);
}

}  // namespace

// What Child<M>::operator() does for a module whose type C++ knows (nn/child.h).
nb::object call_module(nb::handle self, const nb::args& args, const nb::kwargs& kwargs) {
  auto& module = nb::cast<nn::Module&>(self);
  SG_CHECK(!module.only_holds(), "a ", module.type_name(), " has no forward: it is not called, but what it holds is");
  if (module.direct()) return self.attr("forward")(*args, **kwargs);
  nb::object arguments = packed(args, kwargs);
  std::vector<Tensor> inputs = tensors_in_object(arguments);
  nn::detail::CallGuard guard(module);
  {
    Wait wait;
    module.before_forward(inputs);
  }
  nb::object result = run_forward(module, self, with_tensors(arguments, inputs));
  std::vector<Tensor> outputs = tensors_in_object(result);
  {
    Wait wait;
    module.after_forward(outputs);
  }
  return with_tensors(result, outputs);
}

namespace {

std::string text_of(const nn::Module& module) {
  std::ostringstream text;
  text << module;
  return text.str();
}

// As Python gives a walk: a list that is an iterator, too.
nb::object walk(nb::list found) { return nb::module_::import_("shardgrad._results").attr("Walk")(found); }

nb::list named_modules(nb::handle self) {
  nb::list found;
  for (auto& [name, module] : nb::cast<nn::Module&>(self).named_modules())
    found.append(nb::make_tuple(name, nb::cast(module, nb::rv_policy::reference_internal, self)));
  return found;
}

nb::list named_children(nb::handle self) {
  nb::list found;
  for (const auto& [name, child] : nb::cast<nn::Module&>(self).children())
    found.append(nb::make_tuple(name, nb::cast(child.get(), nb::rv_policy::reference_internal, self)));
  return found;
}

// Of pairs of a name and something, the latter.
nb::list without_names(const nb::list& pairs) {
  nb::list found;
  for (nb::handle pair : pairs) found.append(pair[1]);
  return found;
}

// Names and objects of parameters or buffers, each once.
template <class Entries> nb::list named_tensors(nb::handle self, const Entries& entries_of) {
  auto& root = nb::cast<nn::Module&>(self);
  root.complete_names();
  std::set<const nn::Parameter*> seen;
  nb::list found;
  for (auto& [prefix, module] : root.named_modules()) {
    nb::object owner = nb::cast(module, nb::rv_policy::reference_internal, self);
    for (const auto& entry : entries_of(*module))
      if (seen.insert(entry.object.get()).second)
        found.append(nb::make_tuple(prefix.empty() ? entry.name : prefix + "." + entry.name,
                                    object_of(owner, entry.name, entry.object->tensor)));
  }
  return found;
}
nb::list named_parameters(nb::handle self) {
  return named_tensors(self, [](const nn::Module& m) { return m.own_parameters(); });
}
nb::list named_buffers(nb::handle self) {
  return named_tensors(self, [](const nn::Module& m) { return m.own_buffers(); });
}

void bind_walks(ModuleClass& module) {
  module
      .def(
          "named_parameters", [](nb::handle self) { return walk(named_parameters(self)); },
          nb::sig("def named_parameters(self) -> Walk[tuple[str, Parameter]]"), "Pairs of a name and a parameter.")
      .def(
          "parameters", [](nb::handle self) { return walk(without_names(named_parameters(self))); },
          nb::sig("def parameters(self) -> Walk[Parameter]"),
          "Its parameters and those of the modules below, each once: a list that next() goes through, too.")
      .def(
          "named_buffers", [](nb::handle self) { return walk(named_buffers(self)); },
          nb::sig("def named_buffers(self) -> Walk[tuple[str, shardgrad._core.Tensor]]"),
          "Pairs of a name and a buffer.")
      .def(
          "buffers", [](nb::handle self) { return walk(without_names(named_buffers(self))); },
          nb::sig("def buffers(self) -> Walk[shardgrad._core.Tensor]"), "Its buffers and those of the modules below.")
      .def_prop_ro("full_name", &nn::Module::full_name, "The name within the root; empty for the root itself.")
      .def_prop_ro("type_name", &nn::Module::type_name, "The name of its class.")
      .def_prop_ro("training", &nn::Module::training, "Whether it was last told to train(), not to eval().")
      .def("__repr__", text_of);
}

void bind_walks_of_modules(ModuleClass& module) {
  module
      .def(
          "named_modules", [](nb::handle self) { return walk(named_modules(self)); },
          nb::sig("def named_modules(self) -> Walk[tuple[str, Module]]"), "Pairs of a name and a module.")
      .def(
          "modules", [](nb::handle self) { return walk(without_names(named_modules(self))); },
          nb::sig("def modules(self) -> Walk[Module]"), "Itself, and the modules below, each once.")
      .def(
          "named_children", [](nb::handle self) { return walk(named_children(self)); },
          nb::sig("def named_children(self) -> Walk[tuple[str, Module]]"), "Pairs of a name and a module.")
      .def(
          "children", [](nb::handle self) { return walk(without_names(named_children(self))); },
          nb::sig("def children(self) -> Walk[Module]"), "The modules that it holds itself.");
}

nb::object moved(nb::handle self, Destination place) {
  auto& module = nb::cast<nn::Module&>(self);
  {
    Wait wait;
    if (place.dtype) module.to(*place.dtype);
    if (place.device) module.to(*place.device);
  }
  return nb::borrow(self);
}

// A class may have a train() of its own, which keeps a part as it is.
nb::object train(nb::handle self, bool mode) {
  nb::cast<nn::Module&>(self).train(mode);
  nb::object usual = nb::type<nn::Module>().attr("train");
  for (nb::handle module : without_names(named_modules(self)))
    if (!module.is(self) && !module.type().attr("train").is(usual)) module.attr("train")(mode);
  return nb::borrow(self);
}

nb::object apply(nb::handle self, nb::handle function) {
  nb::list modules = without_names(named_modules(self));
  for (size_t i = nb::len(modules); i-- > 0;) function(modules[i]);
  return nb::borrow(self);
}

nb::object load_state_dict(nn::Module& module, const nn::StateDict& state, bool strict) {
  nn::OtherNames others;
  {
    Wait wait;
    if (strict)
      module.load_state_dict(state);
    else
      others = module.load_known(state);
  }
  nb::object result = nb::module_::import_("shardgrad._results").attr("IncompatibleKeys");
  return result(others.missing, others.unexpected);
}

void bind_state(ModuleClass& module) {
  module.def("materialize", &nn::Module::materialize, Waits(), "Gives all parameters and buffers their first values.")
      .def("state_dict", &nn::Module::state_dict, Waits(), "Parameters and buffers by name; the model's own tensors.")
      .def("load_state_dict", load_state_dict, "state_dict"_a, "strict"_a = true,
           nb::sig("def load_state_dict(self, state_dict: typing.Mapping[str, shardgrad._core.Tensor], "
                   "strict: bool = True) -> IncompatibleKeys"),
           "Copies values in. Throws, having changed nothing, listing every name that is missing, unknown or does not "
           "fit. With strict=False values of names that both have are loaded; the others are in the result.")
      .def("train", train, "mode"_a = true, "It and the modules below are in training, or not; the module itself.")
      .def(
          "eval", [](nb::handle self) { return train(self, false); },
          "It and the modules below are not in training; the module itself.")
      .def(
          "zero_grad", [](nn::Module& m, bool) { m.zero_grad(); }, "set_to_none"_a = true, Waits(),
          "Forgets the gradients of its parameters, and frees their memory.")
      .def("apply", apply, "function"_a, "Calls function(module) for every module below and this one, last.")
      .def(
          "requires_grad_",
          [](nb::handle self, bool on) {
            for (NamedParameter& each : nb::cast<nn::Module&>(self).named_parameters())
              each.tensor.set_requires_grad(on);
            return nb::borrow(self);
          },
          "requires_grad"_a = true, "Whether its parameters are trained; the module itself.");
}

void bind_conversions(ModuleClass& module) {
  module
      .def(
          "cpu", [](nb::handle self) { return moved(self, {.dtype = {}, .device = kCpu}); },
          "Moves it to the host's memory; the module itself.")
      .def(
          "cuda",
          [](nb::handle self, const DeviceName& device) {
            return moved(self, {.dtype = {}, .device = gpu_of(device)});
          },
          "device"_a = nb::none(), "Moves it to a GPU's memory, of which a rank has one, number 0; the module itself.");
  auto dtype = [&](const char* name, DType dtype) {
    module.def(
        name, [dtype](nb::handle self) { return moved(self, {.dtype = dtype, .device = {}}); },
        "Converts its floating parameters and buffers to this dtype; the module itself. The running statistics of a "
        "BatchNorm stay in float32 where it has 16 bits.");
  };
  dtype("float", DType::f32), dtype("double", DType::f64);
  dtype("half", DType::f16), dtype("bfloat16", DType::bf16);
  module.def(
      "to",
      [](nb::handle self, const nb::args& to, std::optional<DType> dtype, const DeviceName& device, bool) {
        return moved(self, destination_of(to, dtype, device));
      },
      "dtype_or_device"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "non_blocking"_a = false,
      "Moves it to a device, converts it to a dtype, or both; the module itself. non_blocking means nothing.");
}

void bind_recompute(nb::module_& m) {
  m.def(
      "recompute",
      [](nn::Module& module, bool offload_inputs) { nn::recompute(module, {.offload_inputs = offload_inputs}); },
      "module"_a, nb::kw_only(), "offload_inputs"_a = false,
      "What happens inside this module's calls is not kept for backward, but computed again there.");
  m.def(
      "recompute_by_name",
      [](nn::Module& root, const std::vector<std::string>& patterns, bool offload_inputs) {
        nn::recompute_by_name(root, patterns, {.offload_inputs = offload_inputs});
      },
      "module"_a, "patterns"_a, nb::kw_only(), "offload_inputs"_a = false,
      "recompute of every module below whose name matches: 'blocks.*'.");
  m.def(
      "recompute_by_type",
      [](nn::Module& root, const std::vector<std::string>& types, bool offload_inputs) {
        nn::recompute_by_type(root, types, {.offload_inputs = offload_inputs});
      },
      "module"_a, "types"_a, nb::kw_only(), "offload_inputs"_a = false,
      "recompute of every module below whose class has one of these names.");
}

// For Python's collector: an object holds its attributes and, through C++, its modules, where nobody else does.
int traverse(PyObject* self, visitproc visit, void* arg) {
  if (PyObject** attributes = _PyObject_GetDictPtr(self)) Py_VISIT(*attributes);
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& child : nb::inst_ptr<nn::Module>(self)->children())
    if (child.object.use_count() == 1) Py_VISIT(nb::find(child.object.get()).ptr());
  return 0;
}
int clear(PyObject* self) {
  if (PyObject** attributes = _PyObject_GetDictPtr(self)) Py_CLEAR(*attributes);
  return 0;
}
PyType_Slot collected[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

}  // namespace

void bind_modules(nb::module_& m) {
  ModuleClass module(
      m, "Module", nb::dynamic_attr(), nb::is_weak_referenceable(), nb::type_slots(collected),
      "Owns parameters, buffers and modules. Derive from it, give it a forward, and call the module itself.");
  module.def("__init__", [](nb::pointer_and_handle<nn::Module> self) {
    enter_context();
    new (self.p) PythonModule(self.h.type());
  });
  module.def("__call__", call_module, "args"_a, "kwargs"_a);
  bind_attributes(m, module);
  bind_walks(module);
  bind_walks_of_modules(module);
  bind_state(module);
  bind_conversions(module);
  bind_hooks(m, module);
  bind_recompute(m);
  bind_module_copies(module);
}

}  // namespace shardgrad::python
