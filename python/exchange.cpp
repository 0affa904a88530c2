// Arrays of NumPy's, and of whoever speaks DLPack (autograd/dlpack.h), in and out.

#include <shardgrad/autograd/dlpack.h>
#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

constexpr const char *kName = "dltensor", *kUsed = "used_dltensor";
constexpr const char *kVersionedName = "dltensor_versioned", *kVersionedUsed = "used_dltensor_versioned";

// A capsule that nobody has taken the tensor from gives it back.
template <class M> void drop(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  M* lent = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  if (lent->deleter) lent->deleter(lent);
}

// Memory of a GPU is given back once that has run all there is, for which other threads need not wait.
template <class M> M* given_back_without_gil(M* lent) {
  if (lent->array.device.type != dlpack::DeviceType::cuda) return lent;
  auto ours = std::make_unique<M>(*lent);
  ours->owner = lent;
  ours->deleter = [](M* self) {
    auto* inner = static_cast<M*>(self->owner);
    delete self;
    std::optional<nb::gil_scoped_release> released;
    if (nb::is_alive() && PyGILState_Check()) released.emplace();
    inner->deleter(inner);
  };
  return ours.release();
}

nb::object capsule_of(dlpack::Versioned* lent) {
  return nb::steal(
      PyCapsule_New(lent, kVersionedName, [](PyObject* capsule) { drop<dlpack::Versioned>(capsule, kVersionedName); }));
}
nb::object capsule_of(dlpack::Managed* lent) {
  return nb::steal(PyCapsule_New(lent, kName, [](PyObject* capsule) { drop<dlpack::Managed>(capsule, kName); }));
}

// Python's protocol (data-apis.org, "__dlpack__"). The memory is ready when this returns, for any stream.
nb::object dlpack_of(const Tensor& x, nb::handle, std::optional<std::pair<int, int>> max_version, nb::handle,
                     std::optional<bool> copy) {
  auto capsule = [&](const auto& lend) {
    auto* lent = [&] {
      Wait wait;
      return given_back_without_gil(lend(copy.value_or(false) ? clone(x.detach()) : x));
    }();
    return capsule_of(lent);
  };
  if (max_version && max_version->first >= 1) return capsule([](const Tensor& t) { return dlpack::lend(t); });
  return capsule([](const Tensor& t) { return dlpack::lend_unversioned(t); });
}

// What the protocol wants to know of who takes the tensor. Memory of a GPU is to be ready for its compute stream; null
// where that needs no saying.
nb::object stream_for(nb::handle object) {
  if (!nb::hasattr(object, "__dlpack_device__")) return nb::none();
  nb::object lies = object.attr("__dlpack_device__")();
  auto part = [&](int i) { return nb::cast<int>(nb::int_(lies[i])); };  // PyTorch's first one is an enumeration's
  if (dlpack::DeviceType(part(0)) != dlpack::DeviceType::cuda) return nb::none();
  Device device = dlpack::device_of({dlpack::DeviceType::cuda, part(1)});
  return nb::int_(reinterpret_cast<intptr_t>(context().backend(device).compute().native()));
}

// Runs `take` on what the object lends, with the name that its capsule has to have afterwards.
template <class Take> Tensor taken(nb::handle object, const Take& take) {
  nb::object capsule = nb::borrow(object), stream = nb::none();
  // Who was told no stream has made nothing wait.
  auto ready = [&](auto* lent) {
    Wait wait;
    if (stream.is_none() && lent->array.device.type == dlpack::DeviceType::cuda) wait_for_gpu(lent->array.device.id);
    return lent;
  };
  if (nb::hasattr(object, "__dlpack__")) {
    stream = stream_for(object);
    try {
      capsule = object.attr("__dlpack__")("stream"_a = stream, "max_version"_a = nb::make_tuple(1, 0));
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      capsule = stream.is_none() ? object.attr("__dlpack__")()  // of before version 1.0
                                 : object.attr("__dlpack__")("stream"_a = stream);
    }
  }
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedName))
    return take(ready(static_cast<dlpack::Versioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersionedName))), capsule,
                kVersionedUsed);
  SG_CHECK(PyCapsule_IsValid(capsule.ptr(), kName), "from_dlpack: a ", nb::type_name(object.type()).c_str(),
           " has no __dlpack__, or its tensor was taken before");
  return take(ready(static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), kName))), capsule, kUsed);
}

Tensor from_dlpack(nb::handle object) {
  enter_context();
  return taken(object, [](auto* lent, nb::object& capsule, const char* used) {
    using M = std::remove_pointer_t<decltype(lent)>;
    // Whoever drops the last tensor may be a thread without the GIL, and the owner an object of Python's.
    struct Lease {
      M* lent;
      ~Lease() {
        if (!lent || !nb::is_alive() || !lent->deleter) return;
        nb::gil_scoped_acquire gil;
        lent->deleter(lent);
      }
    };
    M guarded = *lent;
    guarded.owner = new Lease{lent};
    guarded.deleter = [](M* self) {
      delete static_cast<Lease*>(self->owner);
      delete self;
    };
    auto ours = std::make_unique<M>(guarded);
    try {
      Tensor tensor = dlpack::borrow(ours.get());
      static_cast<void>(ours.release());  // the tensor's, by its deleter
      PyCapsule_SetName(capsule.ptr(), used);
      return tensor;
    } catch (...) {
      auto* lease = static_cast<Lease*>(guarded.owner);
      lease->lent = nullptr;  // stays its owner's
      delete lease;
      throw;
    }
  });
}

Tensor values_of(nb::handle object) {
  enter_context();
  return taken(object, [](auto* lent, nb::object&, const char*) {
    Wait wait;
    return dlpack::copy_of(lent->array);
  });
}

bool is_array(nb::handle data) { return nb::hasattr(data, "__dlpack__") || nb::hasattr(data, "__array_interface__"); }

// A copy of an array, of whoever's.
Tensor of_array(nb::handle data, std::optional<DType> dtype, const DeviceName& device) {
  nb::object array = nb::borrow(data);
  if (!nb::hasattr(data, "__dlpack__")) array = nb::module_::import_("numpy").attr("asarray")(data);
  // NumPy lends nothing that is read-only, nor before its version 2.1 versions.
  if (nb::hasattr(array, "flags") && nb::hasattr(array, "copy") &&
      !nb::cast<bool>(array.attr("flags").attr("writeable")))
    array = array.attr("copy")();
  Tensor copy = values_of(array);
  Wait wait;
  NoGrad no_grad;
  Tensor result = copy.to(dtype.value_or(copy.dtype()));
  return device ? result.to(place_of(*device)) : result.to(context().default_device());
}

Tensor tensor_of(nb::handle data, std::optional<DType> dtype, const DeviceName& device, bool requires_grad) {
  Tensor x;
  if (Tensor given; nb::try_cast(data, given)) {
    Wait wait;
    NoGrad no_grad;
    x = clone(given.detach()).to(dtype.value_or(given.dtype()));
    if (device) x = x.to(place_of(*device));
  } else {
    x = is_array(data) ? of_array(data, dtype, device) : tensor_of_numbers(data, dtype, device);
  }
  if (requires_grad) x.set_requires_grad();
  return x;
}

// Of what needs no conversion the tensor itself.
Tensor as_tensor(nb::handle data, std::optional<DType> dtype, const DeviceName& device) {
  Tensor x;
  if (!nb::try_cast(data, x)) return tensor_of(data, dtype, device, false);
  std::optional<Device> place;
  if (device) place = place_of(*device);
  Wait wait;
  return x.to(dtype.value_or(x.dtype())).to(place.value_or(x.device()));
}

nb::object numpy_of(const Tensor& x) {
  SG_CHECK(x.dtype() != DType::bf16, "numpy: NumPy has no bfloat16; convert with .to(float32)");
  SG_CHECK(x.device() == kCpu, "numpy: the tensor is on ", x.device(), "; copy it with .to('cpu')");
  nb::object numpy = nb::module_::import_("numpy");
  return numpy.attr("from_dlpack")(nb::cast(x));
}

// As NumPy asks for it: a copy, none, or, with None, one where the dtype needs it.
nb::object array_of(const Tensor& x, nb::handle dtype, std::optional<bool> copy) {
  nb::object array = numpy_of(x);
  nb::object converted = dtype.is_none() ? array : nb::object(array.attr("astype")(dtype, "copy"_a = false));
  bool same = converted.is(array);
  SG_CHECK(same || copy.value_or(true), "__array__: an array of ", nb::str(dtype).c_str(), " is a copy of a tensor of ",
           x.dtype(), ", and copy=False was given; convert the tensor with .to(dtype), or leave copy out");
  return same && copy.value_or(false) ? nb::object(array.attr("copy")()) : converted;
}

}  // namespace

void bind_exchange(nb::module_& m, TensorClass& tensor) {
  // NumPy leaves operators and functions of tensors alone: their results would be arrays, without a graph.
  tensor.attr("__array_ufunc__") = nb::none();
  m.def("tensor", tensor_of, "data"_a.none(), nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
        "requires_grad"_a = false,
        "A copy of numbers, of nested lists of them, or of an array. Truths are uint8, integers int64, others float32, "
        "arrays keep their dtype.");
  m.def("as_tensor", as_tensor, "data"_a.none(), "dtype"_a = nb::none(), "device"_a = nb::none(),
        "A tensor as it is, of this dtype and on this device; anything else is copied, as by tensor().");
  m.def("from_dlpack", from_dlpack, "x"_a,
        "A tensor on the memory of an array of another library, without a copy; both see what either writes.");
  m.def("from_numpy", from_dlpack, "x"_a, "The same of a NumPy array.");
  tensor
      .def("__dlpack__", dlpack_of, nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(),
           "dl_device"_a = nb::none(), "copy"_a = nb::none())
      .def("__dlpack_device__",
           [](const Tensor& x) {
             dlpack::DeviceOf device = dlpack::device_of(x);
             return std::pair(int(device.type), device.id);
           })
      .def("numpy", numpy_of, Enters(),
           "A NumPy array on this memory, without a copy; both see what either writes. Of a tensor that requires a "
           "gradient: of its detach().")
      .def("__array__", array_of, "dtype"_a = nb::none(), "copy"_a = nb::none(), Enters());
}

}  // namespace shardgrad::python
