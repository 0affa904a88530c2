// Tensors for Python's copy and pickle.

#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/module.h>

namespace shardgrad::python {

Tensor own_copy(const Tensor& x, Category::Kind category) {
  static_cast<void>(x.in());  // in memory, or the error that says why not
  NoGrad no_grad;
  TagScope owner(Tag{category, 0});
  return clone(x.detach());
}

namespace {

bool is_parameter(nb::handle tensor) { return nb::isinstance<ParameterTensor>(tensor); }

nb::object object_with(Tensor x, bool requires_grad, bool parameter) {
  x.set_requires_grad(requires_grad);
  return parameter ? nb::cast(ParameterTensor{std::move(x)}) : nb::cast(std::move(x));
}

Tensor copy_for(nb::handle self) {
  const auto& x = nb::cast<const Tensor&>(self);
  Wait wait;
  return own_copy(x, is_parameter(self) ? Category::parameter_shard : Category::other);
}

// The same memory.
nb::object copied(nb::handle self) {
  const auto& x = nb::cast<const Tensor&>(self);
  return object_with(x.detach(), x.requires_grad(), is_parameter(self));
}

// Several objects may be handles on one tensor, so the memo knows the tensor too.
nb::object deep_copied(nb::handle self, nb::dict memo) {
  const auto& x = nb::cast<const Tensor&>(self);
  SG_CHECK(x.is_leaf(), "deepcopy: this tensor was computed, and what it was computed from cannot be copied with it; ",
           "copy its values, x.detach().clone()");
  nb::int_ tensor(uintptr_t(&x.impl()));
  if (memo.contains(tensor)) return memo[tensor];
  nb::object copy = object_with(copy_for(self), x.requires_grad(), is_parameter(self));
  memo[tensor] = copy;
  if (Tensor grad = x.grad(); grad.defined()) {
    Wait wait;
    nb::cast<const Tensor&>(copy).set_grad(own_copy(grad));
  }
  return copy;
}

nb::tuple reduced(nb::handle self) {
  const auto& x = nb::cast<const Tensor&>(self);
  static_cast<void>(x.in());
  Tensor host;
  {
    Wait wait;
    host = x.detach().to(kCpu);
  }
  nb::bytes bytes(host.in().data, host.bytes());
  return nb::make_tuple(nb::module_::import_("shardgrad._results").attr("remake"),
                        nb::make_tuple(bytes, to_tuple(x.shape()), x.dtype(), name_of_device(x.device()),
                                       x.is_leaf() && x.requires_grad(), is_parameter(self)));
}

nb::object remake(nb::bytes bytes, const std::vector<int64_t>& shape, DType dtype, std::string_view device, bool grad,
                  bool parameter) {
  Shape extents = shape_of(shape);
  SG_CHECK(bytes.size() == size_t(extents.numel()) * size_of(dtype), "a pickled tensor of shape ", extents, " has ",
           bytes.size(), " bytes");
  enter_context();
  TagScope owner(Tag{parameter ? Category::parameter_shard : Category::other, 0});
  TensorOptions options{dtype, parse_device(device)};
  Tensor values;
  {
    Wait wait;
    values = from_bytes(bytes.data(), extents, options);
  }
  return object_with(std::move(values), grad, parameter);
}

}  // namespace

void bind_copies(nb::module_& m, TensorClass& tensor) {
  m.def("_remake", remake, "bytes"_a, "shape"_a, "dtype"_a, "device"_a, "requires_grad"_a, "parameter"_a = false);
  tensor.def("__copy__", copied).def("__deepcopy__", deep_copied, "memo"_a).def("__reduce__", reduced);
}

}  // namespace shardgrad::python
