// Functions of elements, as functions and as methods.

#include <limits>

#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/functions.h>

namespace shardgrad::python {

Tensor clamped(const Tensor& x, const End& min, const End& max) {
  SG_CHECK(min || max, "clamp: it takes a min, a max, or both");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto number = [&](const End& end, Scalar otherwise) {
    return end ? scalar_beside("clamp", x, number_in(*end)) : otherwise;
  };
  auto is_tensor = [](const End& end) { return end && std::holds_alternative<Tensor>(*end); };
  if (!is_tensor(min) && !is_tensor(max)) return clamp(x, number(min, -kInfinity), number(max, kInfinity));
  Tensor y = min ? maximum(x, beside("clamp", x, *min)) : x;
  return max ? minimum(y, beside("clamp", x, *max)) : y;
}

Tensor filled(const Tensor& x, const Tensor& mask, const Operand& value) {
  auto* tensor = std::get_if<Tensor>(&value);
  if (!tensor) return masked_fill(x, mask, scalar_of(number_in(value)));
  SG_CHECK(tensor->ndim() == 0, "masked_fill: the value is a number, or a tensor without dimensions, got ", *tensor);
  SG_CHECK(broadcast_shapes("masked_fill", x.shape(), mask.shape()) == x.shape(), "masked_fill: the mask ", mask,
           " does not broadcast to ", x);
  return where(ne(mask, zeros_like(mask)), tensor->to(x.dtype()).to(x.device()), x);
}

namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using Asking = Truth (*)(const Tensor&);
using Comparing = Truth (*)(const Tensor&, const Tensor&);

void bind_unary(nb::module_& m, TensorClass& tensor) {
  struct Named {
    const char* name;
    Unary function;
    const char* doc;
  };
  const Named functions[] = {{"exp", exp, "e to the power of x."},
                             {"log", log, "The natural logarithm."},
                             {"sqrt", sqrt, "√x"},
                             {"tanh", tanh, "(eˣ - e⁻ˣ) / (eˣ + e⁻ˣ)"},
                             {"sigmoid", sigmoid, "σ(x) = 1 / (1 + e⁻ˣ)"},
                             {"abs", abs, "The size of x, without its sign."},
                             {"sin", sin, "The sine of x, an angle in radians."},
                             {"cos", cos, "The cosine of x, an angle in radians."},
                             {"rsqrt", rsqrt, "1 / √x"},
                             {"reciprocal", reciprocal, "1 / x"},
                             {"square", square, "x · x"},
                             {"log1p", log1p, "log(1 + x), exact near 0."},
                             {"expm1", expm1, "exp(x) - 1, exact near 0."},
                             {"erf", erf, "The error function."},
                             {"floor", floor, "The largest whole number that is not above x."},
                             {"ceil", ceil, "The smallest whole number that is not below x."},
                             {"trunc", trunc, "Towards 0."},
                             {"round", round, "To the nearest; halves to the even one."},
                             {"sign", sign, "-1, 0 or 1."},
                             {"neg", neg, "-x"},
                             {"clone", clone, "A copy with its own memory."}};
  for (const Named& each : functions) def_both(m, tensor, each.name, each.function, each.doc);
}

// The functions take PyTorch's `inplace`, and compute out of place all the same: what they are given stays.
void bind_activations(nb::module_& m, TensorClass& tensor) {
  auto plain = [&](const char* name, Unary function, const char* doc) {
    m.def(
        name, [function](const Tensor& x, bool) { return function(x); }, "x"_a, "inplace"_a = false, Waits(), doc);
    tensor.def(name, function, Waits(), doc);
  };
  auto with = [&](const char* name, auto function, nb::arg_v option, const char* doc) {
    m.def(
        name, [function](const Tensor& x, double number, bool) { return function(x, number); }, "x"_a, option,
        "inplace"_a = false, Waits(), doc);
    tensor.def(name, function, option, Waits(), doc);
  };
  plain("relu", relu, "x where x > 0, else 0.");
  plain("silu", silu, "x · σ(x)");
  with("leaky_relu", leaky_relu, "negative_slope"_a = 0.01, "x where x > 0, else slope · x.");
  with("elu", elu, "alpha"_a = 1., "x where x > 0, else alpha · (exp(x) - 1).");
  def_both(m, tensor, "softplus", softplus, "log(1 + exp(x))");
  def_both(
      m, tensor, "gelu",
      [](const Tensor& x, std::string_view approximate) {
        SG_CHECK(approximate == "none" || approximate == "tanh", "gelu: approximate='", approximate,
                 "' is neither 'none' nor 'tanh'");
        return gelu(x, approximate == "tanh");
      },
      "approximate"_a = "none", "x · Φ(x), exactly or by tanh.");
}

Tensor power(const Tensor& x, const Operand& exponent) {
  if (auto* tensor = std::get_if<Tensor>(&exponent)) return pow(x, *tensor);
  return pow(x, scalar_beside("pow", x, number_in(exponent)));
}

void bind_binary(nb::module_& m, TensorClass& tensor) {
  auto def = [&](const char* name, Binary function, const char* doc) {
    def_both(
        m, tensor, name,
        [name, function](const Tensor& x, const Operand& other) { return function(x, beside(name, x, other)); },
        "other"_a, doc);
  };
  auto scaled = [&](const char* name, Binary function, const char* doc) {
    def_both(
        m, tensor, name,
        [name, function](const Tensor& x, const Operand& other, const Number& alpha) {
          Tensor y = beside(name, x, other);
          Scalar scale = scalar_beside(name, x, alpha);
          return function(x, scale == 1 ? y : y * scale);
        },
        "other"_a, nb::kw_only(), "alpha"_a = 1, doc);
  };
  scaled("add", add, "x + alpha · other"), scaled("sub", sub, "x - alpha · other");
  def("mul", mul, "x · other");
  def("div", div, "x / other, of floating dtypes.");
  def("maximum", maximum, "The larger of each two; NaN where either is.");
  def("minimum", minimum, "The smaller of each two; NaN where either is.");
  def("remainder", remainder, "What is left of x / other rounded down; it has the sign of other.");
  def("floor_divide", floor_divide, "x / other rounded down.");
  def_both(m, tensor, "pow", power, "exponent"_a, "x to this power.");
  for (const char* name : {"clamp", "clip"})
    def_both(m, tensor, name, clamped, "min"_a = nb::none(), "max"_a = nb::none(),
             "Within these bounds, numbers or tensors.");
  m.def(
      "where",
      [](const Tensor& condition, const Operand& x, const Operand& other) {
        const Tensor* given = std::get_if<Tensor>(&x);
        if (!given) given = std::get_if<Tensor>(&other);
        SG_CHECK(given, "where: one of the two at least is a tensor");
        return where(condition, beside("where", *given, x), beside("where", *given, other));
      },
      "condition"_a, "x"_a, "other"_a, Waits(), "x where the condition (uint8) is not 0, else other.");
}

// Integers are subtracted as such, and compared with fractions.
Tensor is_close(const Tensor& x, const Tensor& other, double rtol, double atol, bool equal_nan) {
  NoGrad no_grad;
  Tensor close = eq(x, other);
  bool whole = !is_floating(x.dtype());
  auto as = [&](DType dtype, const Tensor& y) { return whole ? y.to(dtype) : y; };
  Tensor apart = as(DType::f64, abs(as(DType::i64, x) - as(DType::i64, other)));
  Tensor most = abs(as(DType::f64, other)) * rtol + atol;
  close = logical_or(close, logical_and(isfinite(apart), le(apart, most)));
  return equal_nan ? logical_or(close, logical_and(isnan(x), isnan(other))) : close;
}

// Of all elements, as one of Python's truths.
void bind_equalities(nb::module_& m, TensorClass& tensor) {
  def_both(
      m, tensor, "equal",
      [](const Tensor& x, const Tensor& other) { return x.shape() == other.shape() && bool(all(eq(x, other))); },
      "other"_a, "Whether shapes and all elements are equal.");
  def_both(
      m, tensor, "allclose",
      [](const Tensor& x, const Tensor& other, double rtol, double atol, bool equal_nan) {
        return bool(all(is_close(x, other, rtol, atol, equal_nan)));
      },
      "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false,
      "Whether they differ by at most atol + rtol times the other's size everywhere.");
  def_both(m, tensor, "isclose", is_close, "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false,
           "1 (uint8) where they differ by at most atol + rtol times the other's size.");
}

void bind_questions(nb::module_& m, TensorClass& tensor) {
  auto ask = [&](const char* name, Asking function, const char* doc) {
    def_both(
        m, tensor, name, [function](const Tensor& x) -> Tensor { return function(x); }, doc);
  };
  ask("isnan", isnan, "1 (uint8) where x is no number.");
  ask("isinf", isinf, "1 (uint8) where x is infinite.");
  ask("isfinite", isfinite, "1 (uint8) where x is neither infinite nor NaN.");
  ask("logical_not", logical_not, "1 (uint8) where x is 0.");
  auto compare = [&](const char* name, Comparing function) {
    def_both(
        m, tensor, name,
        [name, function](const Tensor& x, const Operand& other) -> Tensor {
          return function(x, beside(name, x, other));
        },
        "other"_a, "1 (uint8) where it holds.");
  };
#define SG_NAMED(name, ...) compare(#name, &shardgrad::name);
  SG_RELATIONS(SG_NAMED)
#undef SG_NAMED
  compare("logical_and", logical_and), compare("logical_or", logical_or), compare("logical_xor", logical_xor);
  def_both(m, tensor, "masked_fill", filled, "mask"_a, "value"_a,
           "x, but the value, a number or a tensor of one, where the mask (uint8) is not 0.");
}

}  // namespace

void bind_functions(nb::module_& m, TensorClass& tensor) {
  bind_unary(m, tensor);
  bind_activations(m, tensor);
  bind_binary(m, tensor);
  bind_questions(m, tensor);
  bind_equalities(m, tensor);
}

}  // namespace shardgrad::python
