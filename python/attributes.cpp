// The parts of a module: what assigning an attribute registers, and what is refused.

#include <shardgrad/autograd/match.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/python/module.h>

namespace shardgrad::python {

PythonModule& of_python(nn::Module& module) {
  auto* own = dynamic_cast<PythonModule*>(&module);
  SG_CHECK(own, "a ", module.type_name(), " of the library gets no further parts; derive from shardgrad.nn.Module");
  return *own;
}

// In the object's attributes, past __setattr__.
static nb::dict objects_of(nb::handle self) {
  nb::dict attributes = nb::borrow<nb::dict>(self.attr("__dict__"));
  if (!attributes.contains("_tensors")) attributes["_tensors"] = nb::dict();
  return nb::borrow<nb::dict>(attributes["_tensors"]);
}

nb::object object_of(nb::handle self, const std::string& name, const Tensor& tensor) {
  nb::dict objects = objects_of(self);
  nb::str key(name.c_str());
  if (objects.contains(key) && nb::cast<const Tensor&>(objects[key]).same_as(tensor)) return nb::borrow(objects[key]);
  std::shared_ptr<nn::Parameter> entry = entry_named(nb::cast<nn::Module&>(self).own_parameters(), name);
  nb::object made = entry ? nb::cast(ParameterTensor{tensor, entry}) : nb::cast(tensor);
  objects[key] = made;
  return made;
}

void set_object(nb::handle self, const std::string& name, nb::handle object) {
  objects_of(self)[name.c_str()] = object;
}

void forget_object(nb::handle self, const std::string& name) { objects_of(self).attr("pop")(name, nb::none()); }

void set_plainly(nb::handle self, const std::string& name, nb::handle value) {
  if (PyObject_GenericSetAttr(self.ptr(), nb::str(name.c_str()).ptr(), value.ptr())) nb::raise_python_error();
}

namespace {

// Registered, under the GIL, once it has its values: other threads and a failure see no half of one.
Tensor buffer_of(PythonModule& own, const std::string& name, const Tensor& values, bool persistent) {
  Tensor copy;
  {
    Wait wait;
    NoGrad no_grad;
    TagScope owner(Tag{Category::buffer, 0});
    copy = empty(values.shape(), {values.dtype(), context().default_device()}, "register_buffer");
    copy_into(copy, values.detach());
  }
  own.buffer(name, values.shape(), values.dtype());
  nn::Parameter& entry = *own.own_buffers().back().object;
  entry.persistent = persistent;
  entry.take(copy);
  entry.initialised = true;
  return entry.tensor;
}

bool is_module(nb::handle value) { return nb::isinstance<nn::Module>(value); }

void check_no_hidden_modules(const std::string& name, nb::handle value, int depth = 0) {
  SG_CHECK(depth == 0 || !is_module(value), "'", name,
           "' holds modules, whose parameters no optimizer would see; make it ",
           "an nn.ModuleList, nn.ModuleDict or nn.Sequential");
  if (depth == 4) return;
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value) || nb::isinstance<nb::set>(value))
    for (nb::handle each : value) check_no_hidden_modules(name, each, depth + 1);
  else if (nb::isinstance<nb::dict>(value))
    for (auto [key, each] : nb::borrow<nb::dict>(value)) check_no_hidden_modules(name, each, depth + 1);
}

nn::Module* child_named(const nn::Module& module, const std::string& name) {
  for (const auto& child : module.children())
    if (child.name == name) return child.object.get();
  return nullptr;
}

// A part under the name of one of Module's own functions would hide it.
void check_free_name(const std::string& name) {
  SG_CHECK(!nb::hasattr(nb::type<nn::Module>(), name.c_str()), "'", name, "' is a name that every module has; choose ",
           "another one");
}

void check_child(const std::string& name, nb::handle child) {
  SG_CHECK(is_module(child), "'", name, "' is no module");
  SG_CHECK(nb::inst_ready(child), "'", name, "' is a module that has not been made; begin its __init__ with ",
           "super().__init__()");
}

void add_child(nb::handle self, const std::string& name, nb::handle child) {
  check_free_name(name);
  check_child(name, child);
  of_python(nb::cast<nn::Module&>(self))
      .share(name, nn::Child<nn::Module>(nb::cast<std::shared_ptr<nn::Module>>(child)));
}

using Children = std::vector<std::pair<std::string, nb::object>>;

// Its modules are these, in this order.
void set_children(nb::handle self, const Children& children) {
  PythonModule& module = of_python(nb::cast<nn::Module&>(self));
  for (const auto& [name, child] : children) {
    check_child(name, child);
    for (auto& [below, each] : nb::cast<nn::Module&>(child).named_modules())
      SG_CHECK(each != &module, module.type_name(), ": '", name, "' would contain itself");
  }
  nb::object before = self.attr("named_children")();
  module.drop_children();
  for (nb::handle each : before) nb::borrow<nb::dict>(self.attr("__dict__")).attr("pop")(each[0], nb::none());
  for (const auto& [name, child] : children) nb::setattr(self, name.c_str(), child);
}

void replace_child(nb::handle self, const std::string& name, nb::handle child) {
  auto children = nb::cast<Children>(self.attr("named_children")());
  for (auto& [each, module] : children)
    if (each == name) module = nb::borrow(child);
  set_children(self, children);
}

// A buffer gets new values, a parameter or module another one in its place.
enum class Assigned { done, not_a_part };
Assigned assign_to_part(nb::handle self, nn::Module& module, const std::string& name, nb::handle value) {
  if (nn::Module* child = child_named(module, name)) {
    SG_CHECK(is_module(value), "'", name, "' is a module of this ", module.type_name(), ", and stays one");
    if (child == nb::cast<nn::Module*>(value))
      set_plainly(self, name, value);
    else
      replace_child(self, name, value);
    return Assigned::done;
  }
  std::shared_ptr<nn::Parameter> buffer = entry_named(module.own_buffers(), name),
                                 trained = entry_named(module.own_parameters(), name);
  if (!buffer && !trained && !member_of(module, name)) return Assigned::not_a_part;
  Tensor given, part = buffer ? buffer->tensor : trained ? trained->tensor : Tensor();
  bool is_tensor = nb::try_cast(value, given);
  if (is_tensor && part.defined() && given.same_as(part)) {
    if (is_of_python(module)) set_plainly(self, name, object_of(self, name, part));
    return Assigned::done;
  }
  if (!buffer) {
    assign_parameter(self, name, value);
    return Assigned::done;
  }
  SG_CHECK(!nb::isinstance<ParameterTensor>(value), "'", name, "' is a buffer of this ", module.type_name(),
           ", in whose place a parameter would not be trained; make the module without the buffer, or give the values "
           "alone, with .detach()");
  SG_CHECK(is_tensor && given.shape() == part.shape() && given.dtype() == part.dtype(), "'", name, "' is a buffer, ",
           part, ", and gets new values of its shape and dtype, not ", nb::repr(value).c_str());
  Wait wait;
  NoGrad no_grad;
  copy_into(part, given.detach());
  return Assigned::done;
}

void add_parameter(nb::handle self, const std::string& name, nb::handle value) {
  auto& given = nb::cast<ParameterTensor&>(value);
  check_free_name(name);
  check_begins(name, given);
  register_parameter(of_python(nb::cast<nn::Module&>(self)), name, given);
  set_object(self, name, value);
}

void set_attribute(nb::handle self, const std::string& name, nb::object value) {
  bool is_parameter = nb::isinstance<ParameterTensor>(value), registers = is_module(value) || is_parameter;
  SG_CHECK(nb::inst_ready(self) || !registers, "'", name, "' is set before the module was made; begin __init__ with ",
           "super().__init__()");
  check_no_hidden_modules(name, value);
  if (nb::inst_ready(self)) {
    auto& module = nb::cast<nn::Module&>(self);
    if (assign_to_part(self, module, name, value) == Assigned::done) return;
    SG_CHECK(name != "forward" || is_of_python(module), "a ", module.type_name(),
             " of the library keeps its forward; derive a ", "class from it");
  }
  if (is_module(value)) add_child(self, name, value);
  if (is_parameter) add_parameter(self, name, value);
  set_plainly(self, name, value);
}

void delete_attribute(nb::handle self, const std::string& name) {
  const auto& module = nb::cast<const nn::Module&>(self);
  SG_CHECK(!entry_named(module.own_parameters(), name) && !entry_named(module.own_buffers(), name) &&
               !child_named(module, name),
           "'", name, "' is a part of this ", module.type_name(), ", and stays one; make the module without it");
  if (PyObject_GenericSetAttr(self.ptr(), nb::str(name.c_str()).ptr(), nullptr)) nb::raise_python_error();
}

void register_buffer(nb::handle self, const std::string& name, const Tensor& values, bool persistent) {
  check_free_name(name);
  PythonModule& own = of_python(nb::cast<nn::Module&>(self));
  nb::object object = object_of(self, name, buffer_of(own, name, values, persistent));
  set_plainly(self, name, object);
}

void register_as_parameter(nb::handle self, const std::string& name, nb::handle value) {
  SG_CHECK(value.is_none() || nb::isinstance<ParameterTensor>(value), "register_parameter: '", name,
           "' is no nn.Parameter, and not None");
  bool is_own = entry_named(nb::cast<nn::Module&>(self).own_parameters(), name) != nullptr;
  SG_CHECK(!name.empty() && name.find('.') == name.npos && (is_own || !nb::hasattr(self.type(), name.c_str())),
           "register_parameter: '", name,
           "' is no name for a parameter: it has a dot, is empty, or means something else here");
  self.attr("__setattr__")(name, value);
}

nb::object param(nb::handle self, const std::string& name, nb::handle shape, const nn::Init& init) {
  check_free_name(name);
  std::vector<int64_t> extents = numbers_of("param", shape);
  enter_context();
  return object_of(self, name, of_python(nb::cast<nn::Module&>(self)).param(name, shape_of(extents), init));
}

// How parameters begin that have no values yet, where their names below `module` match.
void init_parameters(nn::Module& module, const std::string& pattern, const nn::Init& init) {
  bool found = false;
  for (auto& [name, parameter] : module.parameter_entries()) {
    if (!matches(pattern, name)) continue;
    SG_CHECK(!parameter->initialised, "init_parameters: '", name, "' has its values already");
    std::optional<uint64_t> seed = parameter->init.seed;
    parameter->init = init;
    parameter->init.seed = seed;
    found = true;
  }
  SG_CHECK(found, "init_parameters: no parameter's name matches '", pattern, "'");
}

}  // namespace

void bind_attributes(nb::module_& m, ModuleClass& module) {
  nb::class_<ParameterTensor, Tensor>(m, "Parameter",
                                      "A leaf with a copy of data's values, which is trained. Assigned to a module's "
                                      "attribute it is one of its parameters.")
      .def(
          "__init__",
          [](ParameterTensor* self, const Tensor& data, bool requires_grad) {
            new (self) ParameterTensor{own_copy(data, Category::parameter_shard)};
            self->set_requires_grad(requires_grad);
          },
          "data"_a, "requires_grad"_a = true, Waits());
  module.def("__setattr__", set_attribute, "name"_a, "value"_a.none())
      .def("__delattr__", delete_attribute)
      .def(
          "add_module",
          [](nb::handle self, const std::string& name, nb::handle child) {
            SG_CHECK(is_module(child), "add_module: '", name, "' is no module");
            self.attr("__setattr__")(name, child);
          },
          "name"_a, "module"_a, "The same as assigning the module to the attribute `name`.")
      .def("_set_children", set_children)
      .def("register_buffer", register_buffer, "name"_a, "tensor"_a, "persistent"_a = true,
           "A tensor that is moved with the module, and saved if it is persistent, but not trained.")
      .def("register_parameter", register_as_parameter, "name"_a, "param"_a.none(),
           "The same as assigning the nn.Parameter, or None, to the attribute `name`.")
      .def("param", param, "name"_a, "shape"_a, "init"_a,
           "Registers a parameter that gets its values when they are needed: each rank makes only its own part.")
      .def("init_parameters", init_parameters, "pattern"_a, "init"_a,
           "How the parameters begin whose names match ('*' and '?'), before the first call and before fully_shard.");
}

}  // namespace shardgrad::python
