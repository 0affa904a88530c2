#pragma once
// Modules of Python, and what the library's share with them.

#include <string>
#include <typeindex>

#include <shardgrad/nn/module.h>
#include <shardgrad/python/bind.h>

namespace shardgrad::python {

/// A module whose class is Python's: a C++ module without a forward of its own.
class PythonModule : public nn::Module {
 public:
  explicit PythonModule(nb::handle type) : type_(nb::cast<std::string>(type.attr("__name__"))) {
    set_only_holds(!nb::hasattr(type, "forward"));
    make_root();
  }
  std::string type_name() const override { return type_; }
  using nn::Module::buffer;
  using nn::Module::param;
  using nn::Module::share;

 private:
  std::string type_;
};

using ModuleClass = nb::class_<nn::Module, PythonModule>;

/// nn.Parameter: a tensor that becomes a module's own when it is assigned to an attribute.
struct ParameterTensor : Tensor {
  std::shared_ptr<nn::Parameter> entry = {};  ///< once it is a module's
};

/// Throws Error(input) for a module of the library, which gets no further parts.
PythonModule& of_python(nn::Module& module);

/// Runs the hooks and self.forward(…).
nb::object call_module(nb::handle self, const nb::args& args, const nb::kwargs& kwargs);

/// Whether its class is Python's.
bool is_of_python(const nn::Module& module);
/// Null where there is none.
std::shared_ptr<nn::Parameter> entry_named(std::span<const nn::Module::Entry<nn::Parameter>> entries,
                                           const std::string& name);

/// Where a module of the library has the parameter or buffer of this name; null: nowhere.
using FindMember = Tensor* (*)(nn::Module& module, const std::string& name);
Tensor* member_of(nn::Module& module, const std::string& name);
/// For modules of a type of C++.
void set_members(std::type_index type, FindMember find);

/// Makes `given` the parameter `name` of a module, in the place of one that it has; it may be another module's, too.
void register_parameter(nn::Module& module, const std::string& name, ParameterTensor& given);
/// The same for what a user assigns, or None.
void assign_parameter(nb::handle self, const std::string& name, nb::handle value);
/// Throws Error(input) for values that no parameter begins with.
void check_begins(const std::string& name, const ParameterTensor& given);

/// Python's object of a parameter or buffer: one for each as long as the module's object lives, so that `is` and id()
/// mean what they mean of others.
nb::object object_of(nb::handle self, const std::string& name, const Tensor& tensor);
/// `object` is that of a tensor from now on.
void set_object(nb::handle self, const std::string& name, nb::handle object);
void forget_object(nb::handle self, const std::string& name);
/// As object.__setattr__ does.
void set_plainly(nb::handle self, const std::string& name, nb::handle value);

/// Pairs of a name and a module: itself, and those below.
nb::list named_modules(nb::handle self);
/// Of pairs of a name and something, the latter.
nb::list without_names(const nb::list& pairs);
void bind_walks(ModuleClass& module);
/// nn.Parameter, and what assigning an attribute of a module does.
void bind_attributes(nb::module_& m, ModuleClass& module);
void bind_hooks(nb::module_& m, ModuleClass& module);
/// copy, deepcopy and pickle.
void bind_module_copies(ModuleClass& module);

/// The hooks of a module, a list that its object owns and that may be another's copy.
nb::object hooks_of(nb::handle self);
void set_hooks(nb::handle self, nb::object hooks);

}  // namespace shardgrad::python
