// shardgrad.Tensor: what it knows of itself, and what it does as an object of Python. Its operations are bound with the
// functions they are.

#include <sstream>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/backend.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

const char* name_of_dtype(DType dtype) {
  constexpr const char* kNames[kDTypeCount] = {"float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8"};
  return kNames[size_t(dtype)];
}

std::string repr(const Tensor& x) {
  std::string options;
  if (x.dtype() != DType::f32 && x.dtype() != DType::i64) options += concat(", dtype=", name_of_dtype(x.dtype()));
  if (x.device() != kCpu) options += concat(", device='", x.device(), "'");
  if (x.requires_grad()) options += ", requires_grad=True";
  std::ostringstream text;
  text << x;
  std::string indented;
  for (char c : text.str()) indented += c == '\n' ? std::string("\n       ") : std::string(1, c);
  return "tensor(" + indented + options + ")";
}

// All values on the host: integers as such, others as doubles, which hold every floating dtype.
using Values = std::variant<std::vector<int64_t>, std::vector<double>>;
Values values_of(const Tensor& x) {
  Wait wait;
  NoGrad no_grad;
  static_cast<void>(x.in());  // in memory, or the error that says why not
  Tensor host = x.detach().to(kCpu);
  if (is_floating(x.dtype())) return host.to(DType::f64).to_vector<double>();
  return host.to(DType::i64).to_vector<int64_t>();
}

nb::object number_at(const Values& values, size_t i) {
  if (auto* integers = std::get_if<std::vector<int64_t>>(&values)) return nb::int_((*integers)[i]);
  return nb::float_(std::get<std::vector<double>>(values)[i]);
}

nb::object item(const Tensor& x) {
  SG_CHECK(x.numel() == 1, "item: a tensor of shape ", x.shape(), " has ", x.numel(), " numbers, not one");
  return number_at(values_of(x), 0);
}

nb::object nested(const Values& values, const Shape& shape, int dim, size_t& next) {
  if (dim == shape.ndim()) return number_at(values, next++);
  nb::list rows;
  for (int64_t i = 0; i < shape[dim]; ++i) rows.append(nested(values, shape, dim + 1, next));
  return rows;
}

nb::object tolist(const Tensor& x) {
  size_t next = 0;
  return nested(values_of(x), x.shape(), 0, next);
}

// x.to(dtype), x.to(device), x.to(device, dtype), x.to(dtype=…, device=…). A copy has always been made when this
// returns, whatever PyTorch's non_blocking says.
Tensor converted(const Tensor& x, const nb::args& to, std::optional<DType> dtype, const DeviceName& device, bool) {
  Destination place = destination_of(to, dtype, device);
  Wait wait;
  Tensor y = place.dtype ? x.to(*place.dtype) : x;
  return place.device ? y.to(*place.device) : y;
}

// A hook of Python's: what it gives takes the gradient's place, unless it is None.
HookHandle register_hook(const Tensor& x, nb::object function) {
  auto kept = std::make_shared<std::optional<Held>>(Held(std::move(function)));
  x.register_hook([kept](const Tensor& grad) {
    nb::gil_scoped_acquire gil;
    if (!*kept) return Tensor();
    nb::object hook = (*kept)->get(), given = hook(grad);
    return given.is_none() ? Tensor() : given_by<Tensor>("a tensor's hook", given, "a tensor or None");
  });
  return {[kept] { kept->reset(); }};
}

// A name that knows its parts, as PyTorch's devices do.
nb::object device_of(const Tensor& x) {
  return nb::module_::import_("shardgrad._device").attr("device")(name_of_device(x.device()));
}

void bind_dtypes(nb::module_& m) {
  nb::enum_<DType> dtype(m, "dtype", "Element types; a bool of other libraries is uint8 here.");
  for (int i = 0; i < kDTypeCount; ++i) dtype.value(name_of_dtype(DType(i)), DType(i));
  dtype.export_values();
  dtype.def("__repr__", [](DType d) { return concat("shardgrad.", name_of_dtype(d)); })
      .def("__str__", [](DType d) { return concat("shardgrad.", name_of_dtype(d)); })
      .def_prop_ro(
          "itemsize", [](DType d) { return size_of(d); }, "Bytes of an element.")
      .def_prop_ro(
          "is_floating_point", [](DType d) { return is_floating(d); }, "Whether it has fractions.");
  m.def(
      "parse_device", [](const GivenDevice& name) { return name_of_device(place_of(name)); }, "name"_a,
      "The name, if there is such a device: cpu, cuda, acc, sim, meta. 'cuda:0' is 'cuda'.");
  m.def("_cuda_device_count", cuda_device_count);
  m.def(
      "_cuda_synchronize", [] { context().backend(kCuda).compute().synchronize(); }, Waits());
}

using Extents = nb::typed<nb::tuple, int, nb::ellipsis>;

void bind_properties(TensorClass& tensor) {
  tensor
      .def_prop_ro(
          "shape", [](const Tensor& x) { return Extents(to_tuple(x.shape())); }, "The extent of each dimension.")
      .def_prop_ro("dtype", &Tensor::dtype, "The type of its elements.")
      .def_prop_ro("device", device_of, nb::for_getter(nb::sig("def device(self) -> shardgrad._device.device")),
                   "Where its memory is: a name, 'cpu' or 'cuda'.")
      .def_prop_ro(
          "is_cuda", [](const Tensor& x) { return x.device().kind == DeviceKind::cuda; },
          "Whether its memory is a GPU's.")
      .def_prop_ro("ndim", &Tensor::ndim, "How many dimensions it has.")
      .def_prop_ro("nbytes", &Tensor::bytes, "Bytes of all elements.")
      .def_prop_ro("is_leaf", &Tensor::is_leaf, "Whether it was made, not computed from what requires a gradient.")
      .def_prop_rw("name", &Tensor::name, &Tensor::set_name, "Shown in errors; a parameter's full name.")
      .def("numel", &Tensor::numel, "How many elements it has.")
      .def("nelement", &Tensor::numel, "How many elements it has.")
      .def("dim", &Tensor::ndim, "How many dimensions it has.")
      .def(
          "size",
          [](const Tensor& x, std::optional<int> dim) -> nb::object {
            return dim ? nb::object(nb::int_(x.size(*dim))) : nb::object(to_tuple(x.shape()));
          },
          "dim"_a = nb::none(), "The extent of a dimension, or of each.")
      .def(
          "element_size", [](const Tensor& x) { return size_of(x.dtype()); }, "Bytes of an element.")
      .def(
          "is_floating_point", [](const Tensor& x) { return is_floating(x.dtype()); },
          "Whether its elements have fractions.")
      .def(
          "is_contiguous", [](const Tensor&) { return true; }, "Tensors always are.")
      .def(
          "contiguous", [](const Tensor& x) { return x; }, "The tensor itself.");
}

void bind_gradients(TensorClass& tensor) {
  tensor
      .def_prop_rw(
          "requires_grad", &Tensor::requires_grad, [](Tensor& x, bool on) { x.set_requires_grad(on); },
          "Whether backward gives it a gradient, or what it was computed from one.")
      .def(
          "requires_grad_", [](Tensor& x, bool on) { return x.set_requires_grad(on); }, "requires_grad"_a = true,
          "Sets whether backward gives it a gradient; the tensor itself.")
      .def_prop_rw(
          "grad", [](const Tensor& x) { return maybe(x.grad()); },
          [](const Tensor& x, const std::optional<Tensor>& grad) { x.set_grad(or_undefined(grad)); },
          nb::for_getter(Enters()), nb::for_setter(Enters()), nb::arg("grad").none(),
          "What backward has added up for this leaf; None before.")
      .def("detach", &Tensor::detach, "The same memory without its graph.")
      .def_prop_rw(
          "data", &Tensor::detach,
          [](const Tensor& x, const Tensor& value) {
            SG_CHECK(value.shape() == x.shape() && value.dtype() == x.dtype(), "data: ", value, " does not fit ", x,
                     ", which keeps its shape and dtype");
            if (value.storage().get() != x.storage().get() || value.offset() != x.offset())
              copy_into(x.detach(), value.detach());
          },
          nb::for_setter(Waits()), "As detach(); assigned, the values are copied.")
      .def(
          "backward",
          [](const Tensor& x, const std::optional<Tensor>& gradient, bool retain_graph, bool create_graph) {
            check_no_double_backward("backward", create_graph);
            x.backward(or_undefined(gradient), retain_graph);
          },
          "gradient"_a = nb::none(), "retain_graph"_a = false, "create_graph"_a = false, Waits(),
          "Adds the gradient of this tensor (of one element, or times `gradient`) to the leaves it was made from.")
      .def("retain_grad", &Tensor::retain_grad, "This computed tensor keeps its gradient, too.")
      .def("register_hook", register_hook, "hook"_a,
           "hook(grad) runs when the gradient is complete; what it gives takes the gradient's place.");
}

void bind_object(TensorClass& tensor) {
  tensor.def("__repr__", repr, Waits())
      .def("__str__", repr, Waits())
      .def("__len__",
           [](const Tensor& x) {
             SG_CHECK(x.ndim() > 0, "len: a tensor of one number, without dimensions, has no length");
             return x.size(0);
           })
      .def("__hash__", [](const Tensor& x) { return size_t(&x.impl()) >> 4; })
      .def(
          "__bool__", [](const Tensor& x) { return bool(Truth(x)); }, Waits())
      .def("__float__", [](const Tensor& x) { return nb::float_(item(x)); })
      .def("__int__", [](const Tensor& x) { return nb::int_(item(x)); })
      .def("__index__",
           [](const Tensor& x) {
             SG_CHECK(!is_floating(x.dtype()), "a tensor of ", x.dtype(), " is no index; convert it with .to(int64)");
             return nb::int_(item(x));
           })
      .def("__format__",
           [](const Tensor& x, nb::str how) {
             if (x.numel() == 1) return nb::str(nb::handle(item(x).attr("__format__")(how)));
             std::string text;
             {
               Wait wait;
               text = repr(x);
             }
             return nb::str(text.c_str());
           })
      .def("item", item, "The only number, as one of Python's.")
      .def("tolist", tolist, "The numbers as lists of lists.")
      .def(
          "data_ptr", [](const Tensor& x) { return uintptr_t(x.in().data); }, "The address of the first element.")
      .def("same_as", &Tensor::same_as, "other"_a, "Whether both are handles on one tensor, as `is` asks of objects.");
}

void bind_conversions(TensorClass& tensor) {
  tensor.def("to", converted, "dtype_or_device"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
             "non_blocking"_a = false,
             "Of this dtype, or on this device. Differentiable. It never returns before the copy is made: non_blocking "
             "means nothing.");
  tensor.def(
      "type", [](const Tensor& x, DType dtype) { return x.to(dtype); }, "dtype"_a, Waits(), "Of this dtype.");
  auto to = [&](const char* name, DType dtype) {
    tensor.def(
        name, [dtype](const Tensor& x) { return x.to(dtype); }, Waits(),
        concat("As ", name_of_dtype(dtype), ".").c_str());
  };
  to("float", DType::f32), to("double", DType::f64), to("half", DType::f16), to("bfloat16", DType::bf16);
  to("long", DType::i64), to("int", DType::i32);
  tensor.def(
      "bool", [](const Tensor& x) -> Tensor { return logical_not(logical_not(x)); }, Waits(),
      "1 (uint8) where it is not 0.");
  tensor.def(
      "cpu", [](const Tensor& x) { return x.to(kCpu); }, Waits(), "In the host's memory.");
  tensor.def(
      "cuda", [](const Tensor& x, const DeviceName& device, bool) { return x.to(gpu_of(device)); },
      "device"_a = nb::none(), "non_blocking"_a = false, Waits(), "In a GPU's memory; a rank has one, number 0.");
}

}  // namespace

TensorClass bind_tensor(nb::module_& m) {
  bind_dtypes(m);
  nb::class_<HookHandle>(m, "HookHandle", "A hook that was registered.")
      .def(
          "remove",
          [](HookHandle& handle) {
            handle.remove();
            handle.remove = [] {};
          },
          "It does not run any more.")
      .def("__reduce__", [](const HookHandle& handle) {
        SG_CHECK(handle.made_of, "the handle of a tensor's hook cannot be copied, nor can hooks of tensors be");
        return nb::make_tuple(nb::module_::import_("shardgrad._results").attr("remake_handle"), handle.made_of->get());
      });
  TensorClass tensor(m, "Tensor", "Numbers of one dtype on one device, row by row. Copying it copies a handle.");
  bind_properties(tensor);
  bind_gradients(tensor);
  bind_object(tensor);
  bind_conversions(tensor);
  return tensor;
}

}  // namespace shardgrad::python
