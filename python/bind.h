#pragma once
// What the files of the binding share. The binding is thin: each name of Python calls one of C++, with the same words
// in its errors. What every call keeps to:
//
//   - A call that computes or may wait gives the GIL away (Wait), so that other threads of Python go on.
//   - Whoever calls back into Python from C++ takes it (nb::gil_scoped_acquire); Held keeps an object of Python's that
//     a thread without the GIL may drop.
//   - A tensor that is undefined in C++ is None here.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/autograd/ops/losses.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/python/casters.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace shardgrad::python {

/// Gives the calling thread the process's context if it has none; makes it at the first call. Throws Error(input) in a
/// process that a launcher has started as one of several, before dist.init().
void enter_context();

/// Around what computes or may wait: the thread has a context, and the GIL is free.
class Wait {
 public:
  Wait() : counted_(enter_counted()), state_(PyEval_SaveThread()) {}
  ~Wait() {
    if (counted_) leave_counted();
    PyEval_RestoreThread(state_);
  }
  Wait(const Wait&) = delete;

 private:
  // Of other threads than the program's own, whose calls the job's end waits for.
  static bool enter_counted();
  static void leave_counted();
  bool counted_;
  PyThreadState* state_;
};
using Waits = nb::call_guard<Wait>;

/// The same for what neither computes nor waits, but needs a context.
struct Enter {
  Enter() { enter_context(); }
};
using Enters = nb::call_guard<Enter>;

/// An object of Python's in the hands of C++, which may drop it on any thread.
class Held {
 public:
  Held() = default;
  explicit Held(nb::object object)
      : object_(std::shared_ptr<nb::object>(new nb::object(std::move(object)), [](nb::object* last) {
          if (!nb::is_alive()) return;  // the interpreter has gone: nothing is left to count for
          nb::gil_scoped_acquire gil;
          delete last;
        })) {}
  nb::object& get() const { return *object_; }

 private:
  std::shared_ptr<nb::object> object_;
};

/// An exception of Python's as C++ throws it: of its kind and with its sentence, or with the name of its type before.
std::exception_ptr failure_of(nb::handle exception);

/// As a number beside tensors: an integer that no double holds is refused where the tensor is of integers.
Scalar scalar_of(const Number& number);
/// A tensor, or a number beside one.
using Operand = std::variant<Tensor, int64_t, double>;
/// Of an operand that is no tensor.
Number number_in(const Operand& operand);
/// The number beside x. Throws Error(input) naming `op` for one of Python's floats beside integers, with a fraction or
/// without: PyTorch makes float32 of both.
Scalar scalar_beside(const char* op, const Tensor& x, const Number& number);
/// The same as a tensor; a tensor is itself.
Tensor beside(const char* op, const Tensor& x, const Operand& operand);

/// While it lives: deeper than Python lets its own functions call each other is a RecursionError.
class Deeper {
 public:
  Deeper() {
    if (Py_EnterRecursiveCall(" in a tensor's data or a call's arguments")) nb::raise_python_error();
  }
  ~Deeper() { Py_LeaveRecursiveCall(); }
  Deeper(const Deeper&) = delete;
};

/// What a callback gave, as a T. Throws Error(input), naming the callback, for anything else.
template <class T> T given_by(const char* callback, nb::handle given, const char* wanted) {
  T value{};
  SG_CHECK(nb::try_cast(given, value), callback, " gave ", nb::repr(given).c_str(), " where ", wanted, " belongs");
  return value;
}

/// What registering a hook gives.
struct HookHandle {
  std::function<void()> remove;
  std::optional<Held> made_of = {};  ///< of a module's: what makes it again
};

inline std::optional<Tensor> maybe(Tensor tensor) {
  return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
}
inline Tensor or_undefined(const std::optional<Tensor>& tensor) { return tensor.value_or(Tensor()); }

/// Numbers given one by one or as one list: zeros(2, 3) and zeros((2, 3)). Throws Error(input) naming `op`.
std::vector<int64_t> numbers_of(const char* op, const nb::args& given);
/// The same for one argument: a number or a list.
std::vector<int64_t> numbers_of(const char* op, nb::handle given);
std::vector<int> dims_of(const char* op, nb::handle given);
/// What the integer is that this is: Python's, NumPy's, or of a tensor; invalid for anything else.
nb::object integer_of(nb::handle given);
inline Shape shape_of(const std::vector<int64_t>& extents) { return Shape(std::span<const int64_t>(extents)); }
/// What x is broadcast to: -1 keeps the extent of a dimension that x has. Throws Error(input) naming `op`.
Shape broadcast_of(const char* op, const Tensor& x, std::vector<int64_t> extents);
nb::tuple to_tuple(const Shape& shape);

/// Throws Error(input) for another name than mean, sum, none.
Reduction reduction_of(std::string_view name);

using DeviceName = std::optional<GivenDevice>;
std::string name_of_device(Device device);
/// "cuda" and "cuda:0" are one. Throws Error(input) for another number, and for a number without a name.
Device place_of(const GivenDevice& given);

/// What a to(…) asks for.
struct Destination {
  std::optional<DType> dtype;
  std::optional<Device> device;
};
/// Of a dtype, a device or both, in any order, then PyTorch's non_blocking, which means nothing.
Destination destination_of(const nb::args& given, std::optional<DType> dtype, const DeviceName& device);
/// The GPU, also by its number. Throws Error(input) for another device.
Device gpu_of(const DeviceName& given);
/// Without a dtype: `otherwise`.
TensorOptions options_of(std::optional<DType> dtype, const DeviceName& device, DType otherwise = DType::f32);

/// Of a number, or of nested lists of them. Throws Error(input) for what an integer dtype does not hold.
Tensor tensor_of_numbers(nb::handle data, std::optional<DType> dtype, const DeviceName& device);

/// The values of x in memory of its own, and no graph. Throws Error(input) for one that has none.
Tensor own_copy(const Tensor& x, Category::Kind category = Category::other);

using TensorClass = nb::class_<Tensor>;

/// Throws Error(input), naming `call`, where the gradients themselves are to be recorded.
void check_no_double_backward(const char* call, bool create_graph);

/// A function of the module whose first argument is a tensor, and the method of the same name.
template <class Function, class... Extra>
void def_both(nb::module_& m, TensorClass& tensor, const char* name, Function function, const Extra&... extra) {
  m.def(name, function, "x"_a, extra..., Waits());
  tensor.def(name, function, extra..., Waits());
}

// Each file binds what its name says.
void bind_errors(nb::module_& m);
TensorClass bind_tensor(nb::module_& m);
void bind_exchange(nb::module_& m, TensorClass& tensor);
void bind_copies(nb::module_& m, TensorClass& tensor);
void bind_creation(nb::module_& m);
void bind_functions(nb::module_& m, TensorClass& tensor);
void bind_composites(nb::module_& m, TensorClass& tensor);
void bind_operators(TensorClass& tensor);
void bind_writes(TensorClass& tensor);
void bind_layout(nb::module_& m, TensorClass& tensor);
void bind_index(nb::module_& m, TensorClass& tensor);
void bind_reductions(nb::module_& m, TensorClass& tensor);
void bind_selections(nb::module_& m, TensorClass& tensor);
void bind_layers(nb::module_& m, TensorClass& tensor);
void bind_losses(nb::module_& m);
void bind_autograd(nb::module_& m);
void bind_modules(nb::module_& m);
void bind_init(nb::module_& m);
void bind_nn(nb::module_& m);
void bind_loss_modules(nb::module_& m);
void bind_optim(nb::module_& m);
void bind_optimizers(nb::module_& m);
void bind_dist(nb::module_& m);
void bind_fsdp(nb::module_& m);
void bind_watch(nb::module_& m);
void bind_files(nb::module_& m);

}  // namespace shardgrad::python
