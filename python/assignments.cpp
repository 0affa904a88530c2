// What takes the place of a module's parameter: in Python's object, in C++'s module, and in its member.

#include <shardgrad/nn/nn.h>
#include <shardgrad/python/module.h>
#include <shardgrad/python/parameters.h>

namespace shardgrad::python {

std::shared_ptr<nn::Parameter> entry_named(std::span<const nn::Module::Entry<nn::Parameter>> entries,
                                           const std::string& name) {
  for (const auto& entry : entries)
    if (entry.name == name) return entry.object;
  return nullptr;
}

static std::map<std::type_index, FindMember> finders;
void set_members(std::type_index type, FindMember find) { finders[type] = find; }
Tensor* member_of(nn::Module& module, const std::string& name) {
  auto found = finders.find(typeid(module));
  return found == finders.end() ? nullptr : found->second(module, name);
}

static bool any_replaced = false;

// An optimizer that holds what nothing computes with any more would train nothing, without a word.
void check_in_place(nb::handle parameters) {
  if (!any_replaced) return;
  for (nb::handle each : parameters) {
    auto* given = nb::isinstance<ParameterTensor>(each) ? nb::cast<ParameterTensor*>(each) : nullptr;
    SG_CHECK(!given || !given->entry || !given->entry->replaced || given->grad().defined(), "step: '", given->name(),
             "' has no gradient, for its module has another parameter in its place; make the optimizer anew");
  }
}

bool is_of_python(const nn::Module& module) { return dynamic_cast<const PythonModule*>(&module); }

void register_parameter(nn::Module& module, const std::string& name, ParameterTensor& given) {
  std::shared_ptr<nn::Parameter> entry = given.entry;
  if (!entry)
    entry = std::make_shared<nn::Parameter>(
        nn::Parameter{.full_name = {}, .tensor = given, .init = nn::init::zeros(), .initialised = true});
  any_replaced |= bool(entry_named(module.own_parameters(), name));
  module.set_parameter(name, entry);
  if (Tensor* member = member_of(module, name)) *member = entry->tensor;
  if (!given.entry) given.set_name(name);
  given.entry = entry;
}

void check_begins(const std::string& name, const ParameterTensor& given) {
  SG_CHECK(given.entry || given.dtype() == DType::f32, "parameter '", name, "' begins with values of ", given.dtype(),
           "; give float32 values, and convert the whole model with model.to(dtype)");
}

static void check_takes_place(const nn::Module& module, const std::string& name, const Tensor& before,
                              const Tensor& given) {
  bool same_kind = given.dtype() == before.dtype() && given.device() == before.device();
  SG_CHECK(same_kind && (is_of_python(module) || given.shape() == before.shape()), "'", name, "' of this ",
           module.type_name(), " is ", before, ", and ", given, " cannot take its place; ",
           same_kind ? "make a layer of other sizes" : "convert it with .to(dtype) or .to(device) first");
}

static std::string text_of(nb::handle value) {
  Tensor tensor;
  return nb::try_cast(value, tensor) ? concat("a tensor ", tensor) : nb::repr(value).c_str();
}

static void drop_parameter(nb::handle self, const std::string& name) {
  auto& module = nb::cast<nn::Module&>(self);
  module.set_parameter(name, nullptr);
  if (Tensor* member = member_of(module, name)) *member = Tensor();
  forget_object(self, name);
}

void assign_parameter(nb::handle self, const std::string& name, nb::handle value) {
  auto& module = nb::cast<nn::Module&>(self);
  if (value.is_none()) {
    drop_parameter(self, name);
  } else {
    SG_CHECK(nb::isinstance<ParameterTensor>(value), "'", name, "' is a parameter of this ", module.type_name(),
             ", in whose place another nn.Parameter goes, or None, not ", text_of(value),
             "; write values into it: with no_grad(): module.", name, ".copy_(values)");
    auto& given = nb::cast<ParameterTensor&>(value);
    std::shared_ptr<nn::Parameter> before = entry_named(module.own_parameters(), name);
    before ? check_takes_place(module, name, before->tensor, given) : check_begins(name, given);
    register_parameter(module, name, given);
    set_object(self, name, value);
  }
  if (is_of_python(module)) set_plainly(self, name, value);
}

}  // namespace shardgrad::python
