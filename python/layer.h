#pragma once
// How a module type of the library becomes a class of Python.

#include <shardgrad/nn/nn.h>
#include <shardgrad/python/module.h>

namespace shardgrad::python {

using Maybe = std::optional<Tensor>;
/// An LSTM's two states, h and c.
using States = std::optional<std::pair<Tensor, Tensor>>;

/// After __init__ of an M: remembers its arguments by name, for copies, and calls the reset_parameters that a class of
/// Python's has. A copy has both already.
template <class M> struct Remember {
  static inline std::vector<const char*> names = {};
  static void precall(PyObject**, size_t, nb::detail::cleanup_list*) {}
  static void postcall(PyObject** arguments, size_t count, nb::handle) {
    nb::handle self = arguments[0];
    nb::dict attributes = nb::borrow<nb::dict>(self.attr("__dict__")), options;
    if (attributes.contains("_made")) return;
    for (size_t i = 1; i < count; ++i)
      if (!nb::isinstance<nn::Init>(arguments[i]))
        options[names[i - 1]] = nb::handle(arguments[i]);  // a copy has values
    attributes["_made"] = nb::make_tuple(nb::type<M>(), options);
    if (!nb::hasattr(self.type(), "reset_parameters")) return;
    nb::inst_mark_ready(self);  // as nanobind does after this
    auto& module = nb::cast<nn::Module&>(self);
    if (module.own_parameters().empty()) return;
    module.materialize();  // what it changes has values
    self.attr("reset_parameters")();
  }
};

/// The members of an M that are parameters or buffers.
template <class M> struct Members {
  static inline std::map<std::string, Tensor M::*> by_name = {};
  static Tensor* find(nn::Module& module, const std::string& name) {
    M& layer = static_cast<M&>(module);
    if constexpr (requires { layer.parameter(name); }) {
      return layer.parameter(name);
    } else {
      auto found = by_name.find(name);
      return found == by_name.end() ? nullptr : &(layer.*(found->second));
    }
  }
};

/// A type of the library as a class of Python. Called, it runs C++'s forward with the hooks, unless somebody has
/// derived a class from it, whose forward may be Python's, or has given the class another forward.
template <class M, class... Args> class Layer : public nb::class_<M, nn::Module> {
 public:
  Layer(nb::module_& m, const char* name, const char* doc)
      : nb::class_<M, nn::Module>(m, name, nb::dynamic_attr(), doc) {
    set_members(typeid(M), Members<M>::find);
  }

  template <class... Names> Layer& def_forward(const Names&... names) {
    this->def("__call__", call, names...);
    this->def("__call__", call_module, "args"_a, "kwargs"_a);  // of a derived class, with a forward of any signature
    this->def(
        "forward",
        [](M& self, const Args&... args) {
          return with_plain([&](const auto&... each) { return self.forward(each...); }, args...);
        },
        names..., Waits(), "What a call computes. Call the module itself, which runs its hooks, too.");
    own_type = this->ptr();
    own_forward = nb::object(this->attr("forward")).release().ptr();
    return *this;
  }
  template <class F, class... Names> Layer& def_init(F&& make, const Names&... names) {
    (add_name(names), ...);
    this->def("__init__", std::forward<F>(make), names..., nb::call_policy<Remember<M>>());
    return *this;
  }
  /// A parameter as an attribute; assigned another module's, both are the same one from then on.
  Layer& def_parameter(const char* name, Tensor M::*member) {
    Members<M>::by_name[name] = member;
    this->def_prop_rw(
        name,
        [member, name](nb::handle self) {
          const Tensor& tensor = nb::cast<const M&>(self).*member;
          return tensor.defined() ? object_of(self, name, tensor) : nb::none();
        },
        [name](nb::handle self, nb::handle other) { assign_parameter(self, name, other); },
        nb::for_setter(nb::arg("value").none()), "A parameter, or None where the layer has none.");
    return *this;
  }
  Layer& def_buffer(const char* name, Tensor M::*member) {
    Members<M>::by_name[name] = member;
    this->def_prop_ro(
        name, [member](const M& self) { return self.*member; }, "A buffer.");
    return *this;
  }
  Layer& def_weight_and_bias() { return def_parameter("weight", &M::weight).def_parameter("bias", &M::bias); }

 private:
  template <class Name> static void add_name(const Name& name) {
    if constexpr (requires { name.name_; }) Remember<M>::names.push_back(name.name_);
  }
  static std::tuple<Tensor> plain(const Maybe& tensor) { return {or_undefined(tensor)}; }
  static std::tuple<Tensor, Tensor> plain(const States& states) {
    return states ? std::tuple(states->first, states->second) : std::tuple(Tensor(), Tensor());
  }
  template <class T> static std::tuple<const T&> plain(const T& value) { return {value}; }
  template <class Of> static auto with_plain(const Of& of, const Args&... args) {
    return result_of(std::apply(of, std::tuple_cat(plain(args)...)));
  }
  static Tensor result_of(Tensor tensor) { return tensor; }
  static std::pair<Tensor, std::pair<Tensor, Tensor>> result_of(nn::LSTMResult r) { return {r.y, {r.h, r.c}}; }
  static std::tuple<Tensor, Tensor> result_of(nn::GRUResult r) { return {r.y, r.h}; }

  // Whether its class is M's own, with M's forward.
  static bool is_plain(nb::handle self) {
    if (self.type().ptr() != own_type) return false;
    static PyObject* const name = PyUnicode_InternFromString("forward");
    return nb::steal(PyObject_GetAttr(own_type, name)).ptr() == own_forward;
  }
  static nb::object call(nb::handle self, const Args&... args) {
    if (!is_plain(self)) throw nb::next_overload();
    return nb::cast(run(self, args...));
  }
  static auto run(nb::handle self, const Args&... args) {
    M& module = nb::cast<M&>(self);
    if (module.direct()) {
      Wait wait;
      return with_plain([&](const auto&... each) { return module.forward(each...); }, args...);
    }
    auto shared = nb::cast<std::shared_ptr<M>>(self);
    Wait wait;
    nn::Child<M> child(std::move(shared));
    return with_plain([&](const auto&... each) { return child(each...); }, args...);
  }
  static inline PyObject *own_type = nullptr, *own_forward = nullptr;
};

/// For __init__: a root of its own until somebody assigns it to an attribute.
template <class M, class... Args> void make(M* self, Args&&... args) {
  enter_context();
  new (self) M(std::forward<Args>(args)...);
  self->make_root();
}

}  // namespace shardgrad::python
