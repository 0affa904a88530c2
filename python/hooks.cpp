// Hooks around a module's forward.

#include <algorithm>

#include <shardgrad/nn/nn.h>
#include <shardgrad/python/containers.h>
#include <shardgrad/python/module.h>

namespace shardgrad::python {
namespace {

// The module's object owns the function, where Python's collector sees that each may hold the other; C++ knows it from
// afar.
struct Hook {
  nb::object function;  // None once it is removed
  bool before;          // forward
};

int traverse_hook(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Hook>(self)->function.ptr());
  return 0;
}
int clear_hook(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Hook>(self)->function = nb::none();
  return 0;
}
PyType_Slot collected_hook[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_hook)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_hook)},
                                {0, nullptr}};

nn::Module::ForwardHook hook_of(nb::handle hook) {
  return [seen = Held(nb::weakref(hook))](nn::Module& module, std::span<Tensor> tensors) {
    nb::gil_scoped_acquire gil;
    nb::object hook = seen.get()();
    nb::object function = hook.is_none() ? hook : nb::cast<Hook&>(hook).function;
    if (function.is_none()) return;
    nb::object given =
        function(nb::cast(&module, nb::rv_policy::reference), std::vector<Tensor>(tensors.begin(), tensors.end()));
    if (given.is_none()) return;
    std::vector<Tensor> others = tensors_in_object(given);
    SG_CHECK(others.size() == tensors.size(), "a forward hook gave ", others.size(), " tensors for ", tensors.size());
    std::ranges::copy(others, tensors.begin());
  };
}

void install(nb::handle self, nb::handle hook) {
  auto& module = nb::cast<nn::Module&>(self);
  if (nb::cast<Hook&>(hook).before)
    module.add_forward_pre_hook(hook_of(hook));
  else
    module.add_forward_hook(hook_of(hook));
}

// Takes the hook out of the list, if it is still there.
HookHandle handle_of(const nb::object& hooks, const nb::object& hook) {
  return {[hooks = Held(hooks), hook = Held(hook)] {
            if (hooks.get().attr("count")(hook.get()).equal(nb::int_(1))) hooks.get().attr("remove")(hook.get());
            nb::cast<Hook&>(hook.get()).function = nb::none();
          },
          Held(nb::make_tuple(hooks, hook))};
}

HookHandle add_hook(nb::handle self, nb::object function, bool before) {
  nb::object hooks = hooks_of(self), hook = nb::cast(Hook{std::move(function), before});
  hooks.attr("append")(hook);
  install(self, hook);
  return handle_of(hooks, hook);
}

}  // namespace

nb::object hooks_of(nb::handle self) {
  nb::dict attributes = nb::borrow<nb::dict>(self.attr("__dict__"));
  if (!attributes.contains("_forward_hooks")) attributes["_forward_hooks"] = nb::list();
  return nb::borrow(attributes["_forward_hooks"]);
}

void set_hooks(nb::handle self, nb::object hooks) {
  for (nb::handle hook : hooks) install(self, hook);
  nb::borrow<nb::dict>(self.attr("__dict__"))["_forward_hooks"] = hooks;
}

void bind_hooks(nb::module_& m, ModuleClass& module) {
  nb::class_<Hook>(m, "_Hook", nb::is_weak_referenceable(), nb::type_slots(collected_hook))
      .def(nb::init<nb::object, bool>(), "function"_a.none(), "before"_a)
      .def("__reduce__", [](nb::handle self) {
        const Hook& hook = nb::cast<Hook&>(self);
        return nb::make_tuple(self.type(), nb::make_tuple(hook.function, hook.before));
      });
  m.def("_handle_of", handle_of);
  module
      .def(
          "register_forward_pre_hook",
          [](nb::handle self, nb::object hook) { return add_hook(self, std::move(hook), true); }, "hook"_a,
          "hook(module, tensors) sees the tensors among a call's arguments, and may give others for them.")
      .def(
          "register_forward_hook",
          [](nb::handle self, nb::object hook) { return add_hook(self, std::move(hook), false); }, "hook"_a,
          "hook(module, tensors) sees the tensors in a call's result, and may give others for them.");
}

}  // namespace shardgrad::python
