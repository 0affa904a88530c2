// shardgrad.nn.Module: what all modules have. Of one of Python's, parameters, names, hooks and sharding are C++'s, and
// the call is made here.

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
  nb::object result;
  std::vector<Tensor> outputs;
  {
    Replacement replacement;
    result = run_forward(module, self, replacement.in(arguments, inputs));
    outputs = tensors_in_object(result);
  }
  {
    Wait wait;
    module.after_forward(outputs);
  }
  return with_tensors(result, outputs);
}

namespace {

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

// What would be left out without a word.
void check_no_extra_state(nb::handle self) {
  for (nb::handle each : without_names(named_modules(self))) {
    nb::handle type = each.type();
    SG_CHECK(!nb::hasattr(type, "get_extra_state"), "the get_extra_state() of a ",
             nb::str(type.attr("__name__")).c_str(), " is not called, for a state has tensors alone; keep it as a ",
             "buffer (register_buffer), or beside the state, under another name");
  }
}

// In the order of registration, as the walks are.
nb::dict state_dict(nb::handle self) {
  check_no_extra_state(self);
  auto& module = nb::cast<nn::Module&>(self);
  nn::StateDict state;
  {
    Wait wait;
    state = module.state_dict();
  }
  nb::dict ordered;
  for (auto& [prefix, each] : module.named_modules())
    for (auto entries : {each->own_parameters(), each->own_buffers()})
      for (const auto& entry : entries) {
        std::string name = prefix.empty() ? entry.name : prefix + "." + entry.name;
        if (auto found = state.find(name); found != state.end()) ordered[name.c_str()] = found->second;
      }
  return ordered;
}

nb::object load_state_dict(nb::handle self, const nn::StateDict& state, bool strict) {
  check_no_extra_state(self);
  auto& module = nb::cast<nn::Module&>(self);
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
      .def("state_dict", state_dict, nb::sig("def state_dict(self) -> dict[str, shardgrad._core.Tensor]"),
           "Parameters and buffers by name, in the order of registration; the model's own tensors.")
      .def("load_state_dict", load_state_dict, "state_dict"_a, "strict"_a = true,
           nb::sig("def load_state_dict(self, state_dict: typing.Mapping[str, shardgrad._core.Tensor], "
                   "strict: bool = True) -> IncompatibleKeys"),
           "Copies values in. Throws, having changed nothing, listing every name that is missing, unknown or does not "
           "fit. With strict=False values of names that both have are loaded; the others are in the result.")
      .def("train", train, "mode"_a = true, "It and the modules below are in training, or not; the module itself.")
      .def(
          "eval", [](nb::handle self) -> nb::object { return self.attr("train")(false); },
          "It and the modules below are not in training; the module itself.")
      .def(
          "zero_grad", [](nn::Module& m, bool) { m.zero_grad(); }, "set_to_none"_a = true, Waits(),
          "Forgets the gradients of its parameters, and frees their memory; set_to_none=False means nothing.")
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

// After Python's own look-up; for a class whose __getattr__ asks super().
nb::object get_attribute(nb::handle self, const std::string& name) {
  nb::dict attributes = nb::borrow<nb::dict>(nb::steal(PyObject_GenericGetDict(self.ptr(), nullptr)));
  if (attributes.contains(name.c_str())) return nb::borrow(attributes[name.c_str()]);
  std::string type = nb::cast<std::string>(self.type().attr("__name__"));
  throw nb::attribute_error(concat("'", type, "' object has no attribute '", name, "'").c_str());
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
  module.def("__getattr__", get_attribute, "name"_a, nb::sig("def __getattr__(self, name: str) -> typing.Any"));
  bind_attributes(m, module);
  bind_walks(module);
  bind_state(module);
  bind_conversions(module);
  bind_hooks(m, module);
  bind_recompute(m);
  bind_module_copies(module);
}

}  // namespace shardgrad::python
