// Operators of tensors, with tensors and numbers on either side, and changes in place.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

// Calls of(y) with y a tensor or a double.
template <class Of> decltype(auto) with_operand(const char* op, const Tensor& x, const Operand& y, const Of& of) {
  if (auto* tensor = std::get_if<Tensor>(&y)) return of(*tensor);
  return of(exact_beside(op, x, number_in(y)));
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
        double scale = exact_beside(name, nb::cast<const Tensor&>(self), alpha);
        return changed(name, self, other, [&](Tensor& x, const auto& y) {
          if (scale == 1)
            change(x, y);
          else
            change(x, y * scale);
        });
      },
      "other"_a, nb::kw_only(), "alpha"_a = 1, "In place, alpha times the other side; the tensor itself.");
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
      name, [op, of](const Tensor& x, const Number& other) -> Tensor { return of(exact_beside(op, x, other), x); },
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
  def_reversed(tensor, "__radd__", "add", [](double a, const Tensor& b) { return a + b; });
  def_reversed(tensor, "__rsub__", "sub", [](double a, const Tensor& b) { return a - b; });
  def_reversed(tensor, "__rmul__", "mul", [](double a, const Tensor& b) { return a * b; });
  def_reversed(tensor, "__rtruediv__", "div", [](double a, const Tensor& b) { return a / b; });
  def_reversed(tensor, "__rmod__", "remainder", [](double a, const Tensor& b) { return a % b; });
  def_reversed(tensor, "__rfloordiv__", "floor_divide", [](double a, const Tensor& b) { return floor_divide(a, b); });
  def_reversed(tensor, "__rpow__", "pow", [](double a, const Tensor& b) { return pow(a, b); });
  tensor.def("__neg__", neg, Waits()).def("__abs__", abs, Waits());
  tensor.def(
      "__matmul__", [](const Tensor& a, const Tensor& b) { return matmul(a, b); }, nb::is_operator(), Waits());
}

// They are of answers, not of bits.
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

}  // namespace

void bind_operators(TensorClass& tensor) {
  bind_arithmetic(tensor);
  bind_comparisons(tensor);
  def_scaled_in_place(tensor, "__iadd__", "add_", [](Tensor& x, const auto& y) { x += y; });
  def_scaled_in_place(tensor, "__isub__", "sub_", [](Tensor& x, const auto& y) { x -= y; });
  def_in_place(tensor, "__imul__", "mul_", [](Tensor& x, const auto& y) { x *= y; });
  def_in_place(tensor, "__itruediv__", "div_", [](Tensor& x, const auto& y) { x /= y; });
  tensor.def(
      "zero_",
      [](const Tensor& x) {
        fill_(x, 0);
        return x;
      },
      Waits(), "Zeros in place; the tensor itself.");
  tensor.def(
      "fill_",
      [](const Tensor& x, const Operand& value) {
        auto* tensor = std::get_if<Tensor>(&value);
        SG_CHECK(!tensor || !tensor->requires_grad(), "fill_: the value's gradient would be lost; give its item()");
        fill_(x, tensor ? tensor->item() : exact(number_in(value)));
        return x;
      },
      "value"_a, Waits(), "One number everywhere, in place; the tensor itself.");
  tensor.def(
      "copy_",
      [](const Tensor& x, const Tensor& from) {
        SG_CHECK(!grad_enabled() || !from.requires_grad(),
                 "copy_: the other's gradient would be lost; copy its detach(), ", "or under no_grad()");
        copy_into(x, from);
        return x;
      },
      "other"_a, Waits(), "The other's elements over these, not recorded for backward.");
}

}  // namespace shardgrad::python
