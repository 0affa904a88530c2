// Operators of tensors, with tensors and numbers on either side, and changes in place.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/python/functions.h>

namespace shardgrad::python {
namespace {

// Calls of(y) with y a tensor or a Scalar.
template <class Of> decltype(auto) with_operand(const char* op, const Tensor& x, const Operand& y, const Of& of) {
  if (auto* tensor = std::get_if<Tensor>(&y)) return of(*tensor);
  return of(scalar_beside(op, x, number_in(y)));
}

// What Python's in-place operators give is the object itself.
template <class Change>
nb::object changed(const char* op, nb::handle self, const Operand& other, const Change& change) {
  Tensor x = nb::cast<Tensor>(self);
  {
    Wait wait;
    with_operand(op, x, other, [&](const auto& y) { change(x, y); });
  }
  return nb::borrow(self);
}
template <class Change> void def_in_place(TensorClass& tensor, const char* symbol, const char* name, Change change) {
  auto apply = [name, change](nb::handle self, const Operand& other) { return changed(name, self, other, change); };
  tensor.def(symbol, apply, nb::is_operator());
  tensor.def(name, apply, "other"_a, "In place; the tensor itself.");
}
// With a factor of the other side.
template <class Change>
void def_scaled_in_place(TensorClass& tensor, const char* symbol, const char* name, Change change) {
  tensor.def(
      symbol, [name, change](nb::handle self, const Operand& other) { return changed(name, self, other, change); },
      nb::is_operator());
  tensor.def(
      name,
      [name, change](nb::handle self, const Operand& other, const Number& alpha) {
        Scalar scale = scalar_beside(name, nb::cast<const Tensor&>(self), alpha);
        return changed(name, self, other, [&](Tensor& x, const auto& y) {
          if (scale == 1) return change(x, y);
          if (auto* number = std::get_if<int64_t>(&other); number && !is_floating(x.dtype()))
            scalar_of(*number).check_exact(name), scale.check_exact(name);  // their product is a double
          change(x, y * scale);
        });
      },
      "other"_a, nb::kw_only(), "alpha"_a = 1, "In place, alpha times the other side; the tensor itself.");
}

bool loses(const Tensor& x, const Tensor& y) { return will_record(x, y); }
bool loses(const Tensor& x, double) { return will_record(x); }
// As += does it, of what an operation makes beside x.
template <class Of> auto by_copy(const char* op, Of of) {
  return [op, of](const Tensor& x, const auto& y) { write_over(op, x, loses(x, y), [&] { return of(x, y); }); };
}
// As `change` does it; what autocast widens is computed beside x, and goes back into x's dtype.
template <class Change, class Of> auto widened_for(const char* op, Change change, Of of) {
  auto beside = by_copy(op, [of](const Tensor& x, const Tensor& y) { return of(x, y).to(x.dtype()); });
  return [change, beside](Tensor& x, const auto& y) {
    if constexpr (std::is_same_v<std::decay_t<decltype(y)>, Tensor>)
      if (should_promote(x, y)) return beside(x, y);
    change(x, y);
  };
}
template <class Of> void def_by_copy(TensorClass& tensor, const char* symbol, const char* name, Of of) {
  def_in_place(tensor, symbol, name, by_copy(name, of));
}

template <class Of> void def_operator(TensorClass& tensor, const char* name, const char* op, Of of) {
  tensor.def(
      name,
      [op, of](const Tensor& x, const Operand& other) -> Tensor {
        return with_operand(op, x, other, [&](const auto& y) -> Tensor { return of(x, y); });
      },
      nb::is_operator(), Waits());
}

// With a number on the left.
template <class Of> void def_reversed(TensorClass& tensor, const char* name, const char* op, Of of) {
  tensor.def(
      name, [op, of](const Tensor& x, const Number& other) -> Tensor { return of(scalar_beside(op, x, other), x); },
      nb::is_operator(), Waits());
}

void bind_arithmetic(TensorClass& tensor) {
  def_operator(tensor, "__add__", "add", [](const auto& a, const auto& b) { return a + b; });
  def_operator(tensor, "__sub__", "sub", [](const auto& a, const auto& b) { return a - b; });
  def_operator(tensor, "__mul__", "mul", [](const auto& a, const auto& b) { return a * b; });
  def_operator(tensor, "__truediv__", "div", [](const auto& a, const auto& b) { return a / b; });
  def_operator(tensor, "__mod__", "remainder", [](const auto& a, const auto& b) { return a % b; });
  def_operator(tensor, "__floordiv__", "floor_divide", [](const auto& a, const auto& b) { return floor_divide(a, b); });
  def_operator(tensor, "__pow__", "pow", [](const auto& a, const auto& b) { return pow(a, b); });
  def_reversed(tensor, "__radd__", "add", [](const Scalar& a, const Tensor& b) { return a + b; });
  def_reversed(tensor, "__rsub__", "sub", [](const Scalar& a, const Tensor& b) { return a - b; });
  def_reversed(tensor, "__rmul__", "mul", [](const Scalar& a, const Tensor& b) { return a * b; });
  def_reversed(tensor, "__rtruediv__", "div", [](const Scalar& a, const Tensor& b) { return a / b; });
  def_reversed(tensor, "__rmod__", "remainder", [](const Scalar& a, const Tensor& b) { return a % b; });
  def_reversed(tensor, "__rfloordiv__", "floor_divide",
               [](const Scalar& a, const Tensor& b) { return floor_divide(a, b); });
  def_reversed(tensor, "__rpow__", "pow", [](const Scalar& a, const Tensor& b) { return pow(a, b); });
  tensor.def("__neg__", neg, Waits()).def("__abs__", abs, Waits());
  tensor.def(
      "__matmul__", [](const Tensor& a, const Tensor& b) { return matmul(a, b); }, nb::is_operator(), Waits());
}

// Answers, not bits.
const Tensor& truths(const char* symbol, const Tensor& x) {
  SG_CHECK(x.dtype() == DType::u8, symbol, ": a tensor of ", x.dtype(), " holds no truths (uint8); compare it, or ",
           "convert it with .bool()");
  return x;
}

void bind_comparisons(TensorClass& tensor) {
  def_operator(tensor, "__eq__", "eq", [](const auto& a, const auto& b) { return a == b; });
  def_operator(tensor, "__ne__", "ne", [](const auto& a, const auto& b) { return a != b; });
  def_operator(tensor, "__lt__", "lt", [](const auto& a, const auto& b) { return a < b; });
  def_operator(tensor, "__le__", "le", [](const auto& a, const auto& b) { return a <= b; });
  def_operator(tensor, "__gt__", "gt", [](const auto& a, const auto& b) { return a > b; });
  def_operator(tensor, "__ge__", "ge", [](const auto& a, const auto& b) { return a >= b; });
  tensor.def(
      "__and__", [](const Tensor& a, const Tensor& b) -> Tensor { return truths("&", a) & truths("&", b); },
      nb::is_operator(), Waits());
  tensor.def(
      "__or__", [](const Tensor& a, const Tensor& b) -> Tensor { return truths("|", a) | truths("|", b); },
      nb::is_operator(), Waits());
  tensor.def(
      "__xor__", [](const Tensor& a, const Tensor& b) -> Tensor { return logical_xor(truths("^", a), truths("^", b)); },
      nb::is_operator(), Waits());
  tensor.def(
      "__invert__", [](const Tensor& x) -> Tensor { return ~truths("~", x); }, Waits());
}

void bind_in_place(TensorClass& tensor) {
  auto add = widened_for(
      "add_", [](Tensor& x, const auto& y) { x += y; }, [](const Tensor& x, const Tensor& y) { return x + y; });
  auto sub = widened_for(
      "sub_", [](Tensor& x, const auto& y) { x -= y; }, [](const Tensor& x, const Tensor& y) { return x - y; });
  auto mul = widened_for(
      "mul_", [](Tensor& x, const auto& y) { x *= y; }, [](const Tensor& x, const Tensor& y) { return x * y; });
  auto div = widened_for(
      "div_", [](Tensor& x, const auto& y) { x /= y; }, [](const Tensor& x, const Tensor& y) { return x / y; });
  def_scaled_in_place(tensor, "__iadd__", "add_", add);
  def_scaled_in_place(tensor, "__isub__", "sub_", sub);
  def_in_place(tensor, "__imul__", "mul_", mul);
  def_in_place(tensor, "__itruediv__", "div_", div);
  def_by_copy(tensor, "__ifloordiv__", "floor_divide_",
              [](const auto& a, const auto& b) { return floor_divide(a, b); });
  def_by_copy(tensor, "__imod__", "remainder_", [](const auto& a, const auto& b) { return a % b; });
  def_by_copy(tensor, "__ipow__", "pow_", [](const auto& a, const auto& b) { return pow(a, b); });
  auto truth = [&](const char* symbol, const char* op, auto of) {
    auto change = by_copy(op, [op, of](const Tensor& a, const Tensor& b) { return of(truths(op, a), truths(op, b)); });
    tensor.def(
        symbol,
        [change](nb::handle self, const Tensor& other) {
          Tensor x = nb::cast<Tensor>(self);
          {
            Wait wait;
            change(x, other);
          }
          return nb::borrow(self);
        },
        nb::is_operator());
  };
  truth("__iand__", "&=", logical_and), truth("__ior__", "|=", logical_or), truth("__ixor__", "^=", logical_xor);
}

}  // namespace

void bind_operators(TensorClass& tensor) {
  bind_arithmetic(tensor);
  bind_comparisons(tensor);
  bind_in_place(tensor);
}

}  // namespace shardgrad::python
