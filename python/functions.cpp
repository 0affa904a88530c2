// Functions of elements, as functions and as methods.

#include <limits>

#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using Asking = Truth (*)(const Tensor&);
using Comparing = Truth (*)(const Tensor&, const Tensor&);

// A tensor, or a number as one beside x.
using Operand = std::variant<Tensor, double>;
Tensor beside(const Tensor& x, const Operand& operand) {
  if (auto* tensor = std::get_if<Tensor>(&operand)) return *tensor;
  return full({}, std::get<double>(operand), {x.dtype(), x.device()});
}

void bind_unary(nb::module_& m, TensorClass& tensor) {
  struct Named {
    const char* name;
    Unary function;
    const char* doc;
  };
#define SG_NAMED(name, ...) {#name, static_cast<Unary>(&shardgrad::name), ""},
  const Named functions[] = {SG_UNARIES(SG_NAMED, SG_NO_ROW, SG_NO_ROW){"sin", sin, ""},
                             {"cos", cos, ""},
                             {"rsqrt", rsqrt, "1 / √x"},
                             {"reciprocal", reciprocal, "1 / x"},
                             {"square", square, "x · x"},
                             {"log1p", log1p, "log(1 + x), exact near 0."},
                             {"expm1", expm1, "exp(x) - 1, exact near 0."},
                             {"erf", erf, "The error function."},
                             {"floor", floor, ""},
                             {"ceil", ceil, ""},
                             {"trunc", trunc, "Towards 0."},
                             {"round", round, "To the nearest; halves to the even one."},
                             {"sign", sign, "-1, 0 or 1."},
                             {"neg", neg, "-x"},
                             {"clone", clone, "A copy with its own memory."}};
#undef SG_NAMED
  for (const Named& each : functions) def_both(m, tensor, each.name, each.function, each.doc);
  def_both(m, tensor, "softplus", softplus, "log(1 + exp(x))");
  def_both(m, tensor, "leaky_relu", leaky_relu, "negative_slope"_a = 0.01, "x where x > 0, else slope · x.");
  def_both(m, tensor, "elu", elu, "alpha"_a = 1., "x where x > 0, else alpha · (exp(x) - 1).");
  def_both(
      m, tensor, "gelu",
      [](const Tensor& x, std::string_view approximate) {
        SG_CHECK(approximate == "none" || approximate == "tanh", "gelu: approximate='", approximate,
                 "' is neither 'none' nor 'tanh'");
        return gelu(x, approximate == "tanh");
      },
      "approximate"_a = "none", "x · Φ(x), exactly or by tanh.");
}

void bind_binary(nb::module_& m, TensorClass& tensor) {
  auto def = [&](const char* name, Binary function, const char* doc) {
    def_both(
        m, tensor, name, [function](const Tensor& x, const Operand& other) { return function(x, beside(x, other)); },
        "other"_a, doc);
  };
  def("add", add, "x + other"), def("sub", sub, "x - other"), def("mul", mul, "x · other");
  def("div", div, "x / other, of floating dtypes.");
  def("maximum", maximum, "The larger of each two; NaN where either is.");
  def("minimum", minimum, "The smaller of each two; NaN where either is.");
  def("remainder", remainder, "What is left of x / other rounded down; it has the sign of other.");
  def("floor_divide", floor_divide, "x / other rounded down.");
  def_both(
      m, tensor, "pow",
      [](const Tensor& x, const Operand& exponent) {
        if (auto* tensor = std::get_if<Tensor>(&exponent)) return pow(x, *tensor);
        return pow(x, std::get<double>(exponent));
      },
      "exponent"_a, "x to this power.");
  def_both(
      m, tensor, "clamp",
      [](const Tensor& x, std::optional<double> min, std::optional<double> max) {
        constexpr double kInfinity = std::numeric_limits<double>::infinity();
        SG_CHECK(min || max, "clamp: it takes a min, a max, or both");
        return clamp(x, min.value_or(-kInfinity), max.value_or(kInfinity));
      },
      "min"_a = nb::none(), "max"_a = nb::none(), "Within these bounds.");
  m.def(
      "where",
      [](const Tensor& condition, const Operand& x, const Operand& other) {
        const Tensor* given = std::get_if<Tensor>(&x);
        if (!given) given = std::get_if<Tensor>(&other);
        SG_CHECK(given, "where: one of the two at least is a tensor");
        return where(condition, beside(*given, x), beside(*given, other));
      },
      "condition"_a, "x"_a, "other"_a, Waits(), "x where the condition (uint8) is not 0, else other.");
}

// Of all elements, as one of Python's truths.
void bind_equalities(nb::module_& m, TensorClass& tensor) {
  def_both(
      m, tensor, "equal",
      [](const Tensor& x, const Tensor& other) { return x.shape() == other.shape() && bool(all(eq(x, other))); },
      "other"_a, "Whether shapes and all elements are equal.");
  def_both(
      m, tensor, "allclose",
      [](const Tensor& x, const Tensor& other, double rtol, double atol) {
        NoGrad no_grad;
        Tensor most = abs(other) * rtol + atol;
        return bool(all(logical_or(eq(x, other), le(abs(x - other), most))));
      },
      "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "Whether |x - other| <= atol + rtol · |other| everywhere.");
}

void bind_questions(nb::module_& m, TensorClass& tensor) {
  auto ask = [&](const char* name, Asking function, const char* doc) {
    def_both(
        m, tensor, name, [function](const Tensor& x) -> Tensor { return function(x); }, doc);
  };
  ask("isnan", isnan, ""), ask("isinf", isinf, ""), ask("isfinite", isfinite, ""), ask("logical_not", logical_not, "");
  auto compare = [&](const char* name, Comparing function) {
    def_both(
        m, tensor, name,
        [function](const Tensor& x, const Operand& other) -> Tensor { return function(x, beside(x, other)); },
        "other"_a, "1 (uint8) where it holds.");
  };
#define SG_NAMED(name, ...) compare(#name, &shardgrad::name);
  SG_RELATIONS(SG_NAMED)
#undef SG_NAMED
  compare("logical_and", logical_and), compare("logical_or", logical_or), compare("logical_xor", logical_xor);
  def_both(m, tensor, "masked_fill", masked_fill, "mask"_a, "value"_a, "x, but value where the mask (uint8) is not 0.");
}

}  // namespace

void bind_functions(nb::module_& m, TensorClass& tensor) {
  bind_unary(m, tensor);
  bind_binary(m, tensor);
  bind_questions(m, tensor);
  bind_equalities(m, tensor);
}

// --- operators ------------------------------------------------------------------------------------------------------

namespace {

// What Python's in-place operators give is the object itself.
template <class Change> void def_in_place(TensorClass& tensor, const char* name, Change change) {
  tensor.def(
      name,
      [change](nb::handle self, const Operand& other) {
        Tensor x = nb::cast<Tensor>(self);
        {
          Wait wait;
          if (auto* by = std::get_if<Tensor>(&other))
            change(x, *by);
          else
            change(x, std::get<double>(other));
        }
        return nb::borrow(self);
      },
      nb::is_operator());
}

template <class Of> void def_operator(TensorClass& tensor, const char* name, Of of) {
  tensor.def(
      name, [of](const Tensor& x, const Tensor& other) -> Tensor { return of(x, other); }, nb::is_operator(), Waits());
  tensor.def(
      name, [of](const Tensor& x, double other) -> Tensor { return of(x, other); }, nb::is_operator(), Waits());
}

// With a number on the left.
template <class Of> void def_reversed(TensorClass& tensor, const char* name, Of of) {
  tensor.def(
      name, [of](const Tensor& x, double other) -> Tensor { return of(other, x); }, nb::is_operator(), Waits());
}

void bind_arithmetic(TensorClass& tensor) {
  def_operator(tensor, "__add__", [](const auto& a, const auto& b) { return a + b; });
  def_operator(tensor, "__sub__", [](const auto& a, const auto& b) { return a - b; });
  def_operator(tensor, "__mul__", [](const auto& a, const auto& b) { return a * b; });
  def_operator(tensor, "__truediv__", [](const auto& a, const auto& b) { return a / b; });
  def_operator(tensor, "__mod__", [](const auto& a, const auto& b) { return a % b; });
  def_operator(tensor, "__floordiv__", [](const Tensor& a, const auto& b) { return floor_divide(a, beside(a, b)); });
  def_operator(tensor, "__pow__", [](const auto& a, const auto& b) { return pow(a, b); });
  def_reversed(tensor, "__radd__", [](double a, const Tensor& b) { return a + b; });
  def_reversed(tensor, "__rsub__", [](double a, const Tensor& b) { return a - b; });
  def_reversed(tensor, "__rmul__", [](double a, const Tensor& b) { return a * b; });
  def_reversed(tensor, "__rtruediv__", [](double a, const Tensor& b) { return a / b; });
  def_reversed(tensor, "__rpow__", [](double a, const Tensor& b) { return pow(a, b); });
  tensor.def("__neg__", neg, Waits()).def("__abs__", abs, Waits());
  tensor.def(
      "__matmul__", [](const Tensor& a, const Tensor& b) { return matmul(a, b); }, nb::is_operator(), Waits());
}

void bind_comparisons(TensorClass& tensor) {
  def_operator(tensor, "__eq__", [](const auto& a, const auto& b) { return a == b; });
  def_operator(tensor, "__ne__", [](const auto& a, const auto& b) { return a != b; });
  def_operator(tensor, "__lt__", [](const auto& a, const auto& b) { return a < b; });
  def_operator(tensor, "__le__", [](const auto& a, const auto& b) { return a <= b; });
  def_operator(tensor, "__gt__", [](const auto& a, const auto& b) { return a > b; });
  def_operator(tensor, "__ge__", [](const auto& a, const auto& b) { return a >= b; });
  tensor.def(
      "__and__", [](const Tensor& a, const Tensor& b) -> Tensor { return a & b; }, nb::is_operator(), Waits());
  tensor.def(
      "__or__", [](const Tensor& a, const Tensor& b) -> Tensor { return a | b; }, nb::is_operator(), Waits());
  tensor.def(
      "__xor__", [](const Tensor& a, const Tensor& b) -> Tensor { return logical_xor(a, b); }, nb::is_operator(),
      Waits());
  tensor.def(
      "__invert__", [](const Tensor& x) -> Tensor { return ~x; }, Waits());
}

}  // namespace

void bind_operators(TensorClass& tensor) {
  bind_arithmetic(tensor);
  bind_comparisons(tensor);
  for (const char* name : {"__iadd__", "add_"}) def_in_place(tensor, name, [](Tensor& x, const auto& y) { x += y; });
  for (const char* name : {"__isub__", "sub_"}) def_in_place(tensor, name, [](Tensor& x, const auto& y) { x -= y; });
  for (const char* name : {"__imul__", "mul_"}) def_in_place(tensor, name, [](Tensor& x, const auto& y) { x *= y; });
  for (const char* name : {"__itruediv__", "div_"})
    def_in_place(tensor, name, [](Tensor& x, const auto& y) { x /= y; });
  tensor.def(
      "zero_",
      [](const Tensor& x) {
        fill_(x, 0);
        return x;
      },
      Waits());
  tensor.def(
      "fill_",
      [](const Tensor& x, double value) {
        fill_(x, value);
        return x;
      },
      "value"_a, Waits());
  tensor.def(
      "copy_",
      [](const Tensor& x, const Tensor& from) {
        copy_into(x, from);
        return x;
      },
      "other"_a, Waits(), "The other's elements over these, not recorded for backward.");
}

}  // namespace shardgrad::python
