// The parts of a module: what assigning an attribute registers, and what is refused.

#include <algorithm>

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

void tie(nn::Module& module, const Tensor& first, Tensor& second) {
  nn::Module* top = &module;
  while (top->parent()) top = const_cast<nn::Module*>(top->parent());
  of_python(*top).tie(first, second);
}

namespace {

// A parameter with the values of a tensor, which exist from the start.
Tensor parameter_of(nn::Module& module, const std::string& name, const Tensor& values) {
  PythonModule& own = of_python(module);
  NoGrad no_grad;
  Tensor parameter = own.param(name, values.shape(), nn::init::zeros());
  own.own_parameters().back().object->allocate();
  SG_CHECK(values.dtype() == DType::f32, "parameter '", name, "' begins with values of ", values.dtype(),
           "; give float32 values, and convert the whole model with model.to(dtype)");
  copy_into(parameter, values);
  return parameter;
}

Tensor buffer_of(nn::Module& module, const std::string& name, const Tensor& values) {
  PythonModule& own = of_python(module);
  NoGrad no_grad;
  Tensor buffer = own.buffer(name, values.shape(), values.dtype());
  own.own_buffers().back().object->allocate();
  copy_into(buffer, values);
  return buffer;
}

// What nn.Parameter(values) is until it is a module's.
struct NewParameter {
  Tensor values;
  bool requires_grad;
};

bool is_module(nb::handle value) { return nb::isinstance<nn::Module>(value); }

void check_no_hidden_modules(const std::string& name, nb::handle value) {
  auto check = [&](nb::handle each) {
    SG_CHECK(!is_module(each), "'", name, "' is a ", nb::type_name(value.type()).c_str(),
             " of modules, whose parameters ",
             "no optimizer would see; make it an nn.ModuleList, nn.ModuleDict or nn.Sequential");
  };
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value))
    for (nb::handle each : value) check(each);
  else if (nb::isinstance<nb::dict>(value))
    for (auto [key, each] : nb::borrow<nb::dict>(value)) check(each);
}

nn::Module* child_named(const nn::Module& module, const std::string& name) {
  for (const auto& child : module.children())
    if (child.name == name) return child.object.get();
  return nullptr;
}

void add_child(nb::handle self, const std::string& name, nb::handle child) {
  auto& module = nb::cast<nn::Module&>(self);
  if (child_named(module, name) == nb::cast<nn::Module*>(child)) return;
  of_python(module).share(name, nn::Child<nn::Module>(nb::cast<std::shared_ptr<nn::Module>>(child)));
}

Tensor add_parameter(nb::handle self, const std::string& name, const NewParameter& given) {
  Tensor parameter = parameter_of(nb::cast<nn::Module&>(self), name, given.values);
  if (!given.requires_grad) parameter.set_requires_grad(false);
  return parameter;
}

void set_attribute(nb::handle self, const std::string& name, nb::object value) {
  bool registers = is_module(value) || nb::isinstance<NewParameter>(value);
  SG_CHECK(nb::inst_ready(self) || !registers, "'", name, "' is set before the module was made; begin __init__ with ",
           "super().__init__()");
  check_no_hidden_modules(name, value);
  if (is_module(value)) add_child(self, name, value);
  if (nb::isinstance<NewParameter>(value)) {
    enter_context();
    value = nb::cast(add_parameter(self, name, nb::cast<NewParameter&>(value)));
  }
  if (PyObject_GenericSetAttr(self.ptr(), nb::str(name.c_str()).ptr(), value.ptr())) nb::raise_python_error();
}

void delete_attribute(nb::handle self, const std::string& name) {
  const auto& module = nb::cast<nn::Module&>(self);
  auto named = [&](const auto& entry) { return entry.name == name; };
  SG_CHECK(std::ranges::none_of(module.own_parameters(), named) && std::ranges::none_of(module.own_buffers(), named) &&
               !child_named(module, name),
           "'", name, "' is a part of this ", module.type_name(), ", and stays one; make the module without it");
  if (PyObject_GenericSetAttr(self.ptr(), nb::str(name.c_str()).ptr(), nullptr)) nb::raise_python_error();
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
  nb::class_<NewParameter>(m, "Parameter",
                           "A parameter to be, with its first values: assign it to a module's attribute.")
      .def(
          "__init__",
          [](NewParameter* self, const Tensor& data, bool requires_grad) {
            new (self) NewParameter{data, requires_grad};
          },
          "data"_a, "requires_grad"_a = true);
  module.def("__setattr__", set_attribute)
      .def("__delattr__", delete_attribute)
      .def(
          "add_module",
          [](nb::handle self, const std::string& name, nb::handle child) {
            SG_CHECK(is_module(child), "add_module: '", name, "' is no module");
            self.attr("__setattr__")(name, child);
          },
          "name"_a, "module"_a)
      .def(
          "register_buffer",
          [](nb::handle self, const std::string& name, const Tensor& values) {
            enter_context();
            self.attr("__setattr__")(name, buffer_of(nb::cast<nn::Module&>(self), name, values));
          },
          "name"_a, "tensor"_a, "A tensor that is saved and moved with the module, but not trained.")
      .def(
          "param",
          [](nn::Module& m, const std::string& name, nb::handle shape, const nn::Init& init) {
            std::vector<int64_t> extents = numbers_of("param", shape);
            Wait wait;
            return of_python(m).param(name, shape_of(extents), init);
          },
          "name"_a, "shape"_a, "init"_a,
          "Registers a parameter that gets its values when they are needed: each rank makes only its own part.")
      .def("init_parameters", init_parameters, "pattern"_a, "init"_a,
           "How the parameters begin whose names match ('*' and '?'), before the first call and before fully_shard.");
}

}  // namespace shardgrad::python
