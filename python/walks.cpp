// What a module goes through: its parameters, buffers and modules, with their names.

#include <algorithm>
#include <set>
#include <sstream>

#include <shardgrad/nn/nn.h>
#include <shardgrad/python/module.h>

namespace shardgrad::python {

nb::list named_modules(nb::handle self) {
  nb::list found;
  for (auto& [name, module] : nb::cast<nn::Module&>(self).named_modules())
    found.append(nb::make_tuple(name, nb::cast(module, nb::rv_policy::reference_internal, self)));
  return found;
}

nb::list without_names(const nb::list& pairs) {
  nb::list found;
  for (nb::handle pair : pairs) found.append(pair[1]);
  return found;
}

namespace {

// As Python gives a walk: a list that is an iterator, too.
nb::object walk(nb::list found) { return nb::module_::import_("shardgrad._results").attr("Walk")(found); }

nb::list named_children(nb::handle self) {
  nb::list found;
  for (const auto& [name, child] : nb::cast<nn::Module&>(self).children())
    found.append(nb::make_tuple(name, nb::cast(child.get(), nb::rv_policy::reference_internal, self)));
  return found;
}

// Names and objects of parameters or buffers, each once.
template <class Entries> nb::list named_tensors(nb::handle self, bool recurse, const Entries& entries_of) {
  auto& root = nb::cast<nn::Module&>(self);
  root.complete_names();
  std::set<const nn::Parameter*> seen;
  nb::list found;
  for (auto& [prefix, module] : root.named_modules()) {
    if (!recurse && module != &root) break;
    nb::object owner = nb::cast(module, nb::rv_policy::reference_internal, self);
    for (const auto& entry : entries_of(*module))
      if (seen.insert(entry.object.get()).second)
        found.append(nb::make_tuple(prefix.empty() ? entry.name : prefix + "." + entry.name,
                                    object_of(owner, entry.name, entry.object->tensor)));
  }
  return found;
}
nb::list named_parameters(nb::handle self, bool recurse) {
  return named_tensors(self, recurse, [](const nn::Module& m) { return m.own_parameters(); });
}
nb::list named_buffers(nb::handle self, bool recurse) {
  return named_tensors(self, recurse, [](const nn::Module& m) { return m.own_buffers(); });
}

std::string text_of(const nn::Module& module) {
  std::ostringstream text;
  text << module;
  return text.str();
}

// Children before parents, each once.
void visit_from_below(nb::handle self, nb::handle function, std::set<PyObject*>& seen) {
  if (!seen.insert(self.ptr()).second) return;
  for (nb::handle child : without_names(named_children(self))) visit_from_below(child, function, seen);
  function(self);
}
nb::object apply(nb::handle self, nb::handle function) {
  std::set<PyObject*> seen;
  visit_from_below(self, function, seen);
  return nb::borrow(self);
}

// By its name below: "blocks.0.up"; "" is the module itself.
nb::object get_submodule(nb::handle self, const std::string& target) {
  nb::object found = nb::borrow(self);
  for (size_t begin = 0; !target.empty() && begin <= target.size();) {
    size_t end = std::min(target.find('.', begin), target.size());
    std::string name = target.substr(begin, end - begin);
    nb::object next;
    for (nb::handle child : named_children(found))
      if (nb::cast<std::string>(child[0]) == name) next = child[1];
    SG_CHECK(next, "get_submodule: there is no '", target, "': ", nb::cast<nn::Module&>(found).type_name(),
             " has no module '", name, "'");
    found = next;
    begin = end + 1;
  }
  return found;
}

void bind_tensors(ModuleClass& module) {
  module
      .def(
          "named_parameters", [](nb::handle self, bool recurse) { return walk(named_parameters(self, recurse)); },
          "recurse"_a = true,
          nb::sig("def named_parameters(self, recurse: bool = True) -> Walk[tuple[str, Parameter]]"),
          "Pairs of a name and a parameter: recurse=False leaves out those of the modules below.")
      .def(
          "parameters",
          [](nb::handle self, bool recurse) { return walk(without_names(named_parameters(self, recurse))); },
          "recurse"_a = true, nb::sig("def parameters(self, recurse: bool = True) -> Walk[Parameter]"),
          "Its parameters and those of the modules below, each once: a list that next() goes through, too.")
      .def(
          "named_buffers", [](nb::handle self, bool recurse) { return walk(named_buffers(self, recurse)); },
          "recurse"_a = true,
          nb::sig("def named_buffers(self, recurse: bool = True) -> Walk[tuple[str, shardgrad._core.Tensor]]"),
          "Pairs of a name and a buffer.")
      .def(
          "buffers", [](nb::handle self, bool recurse) { return walk(without_names(named_buffers(self, recurse))); },
          "recurse"_a = true, nb::sig("def buffers(self, recurse: bool = True) -> Walk[shardgrad._core.Tensor]"),
          "Its buffers and those of the modules below.")
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
          nb::sig("def children(self) -> Walk[Module]"), "The modules that it holds itself.")
      .def("get_submodule", get_submodule, "target"_a, nb::sig("def get_submodule(self, target: str) -> Module"),
           "The module of this name below: 'blocks.0.up'.")
      .def("apply", apply, "function"_a,
           "Calls function(module) for every module below, children before parents, and for this one, last.");
}

}  // namespace

void bind_walks(ModuleClass& module) {
  bind_tensors(module);
  bind_walks_of_modules(module);
}

}  // namespace shardgrad::python
