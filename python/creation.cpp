// New tensors.

#include <map>

#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

using Dtype = std::optional<DType>;

Tensor with_grad(Tensor x, bool requires_grad) {
  if (requires_grad) x.set_requires_grad();
  return x;
}

// zeros(2, 3), zeros((2, 3), dtype=…), …
template <class Make> void def_shaped(nb::module_& m, const char* name, Make make, const char* doc) {
  m.def(
      name,
      [name, make](const nb::args& size, Dtype dtype, const DeviceName& device, bool requires_grad) {
        std::vector<int64_t> extents = numbers_of(name, size);
        Wait wait;
        return with_grad(make(shape_of(extents), options_of(dtype, device)), requires_grad);
      },
      "size"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "requires_grad"_a = false, doc);
}

template <class Make> void def_like(nb::module_& m, const char* name, Make make, const char* doc) {
  m.def(
      name, [make](const Tensor& x, bool requires_grad) { return with_grad(make(x), requires_grad); }, "x"_a,
      nb::kw_only(), "requires_grad"_a = false, Waits(), doc);
}

// Drawn from the sequence `name`.
template <class Draw> void def_drawn(nb::module_& m, const char* called, Draw draw, const char* doc) {
  m.def(
      called,
      [called, draw](const nb::args& size, std::string_view name, Dtype dtype, const DeviceName& device,
                     bool requires_grad) {
        std::vector<int64_t> extents = numbers_of(called, size);
        Wait wait;
        return with_grad(draw(shape_of(extents), name, options_of(dtype, device)), requires_grad);
      },
      "size"_a, nb::kw_only(), "name"_a = "", "dtype"_a = nb::none(), "device"_a = nb::none(),
      "requires_grad"_a = false, doc);
}

DType fill_dtype(const Number& value) {
  return value.is_truth ? DType::u8 : std::holds_alternative<int64_t>(value) ? DType::i64 : DType::f32;
}

void bind_full(nb::module_& m) {
  m.def(
      "full",
      [](nb::handle size, const Number& value, Dtype dtype, const DeviceName& device) {
        std::vector<int64_t> extents = numbers_of("full", size);
        Wait wait;
        return full(shape_of(extents), scalar_of(value), options_of(dtype, device, fill_dtype(value)));
      },
      "size"_a, "fill_value"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
      "One number everywhere. Without a dtype: float32 of a float, int64 of an integer, uint8 of a truth.");
  m.def(
      "full_like",
      [](const Tensor& x, const Number& value) {
        Scalar number = scalar_of(value);
        Wait wait;
        return full_like(x, number);
      },
      "x"_a, "fill_value"_a, "One number everywhere, of x's shape, dtype and device.");
}

void bind_filled(nb::module_& m) {
  def_shaped(
      m, "zeros", [](const Shape& s, TensorOptions o) { return zeros(s, o); }, "Zeros of this shape.");
  def_shaped(
      m, "ones", [](const Shape& s, TensorOptions o) { return ones(s, o); }, "Ones of this shape.");
  def_shaped(
      m, "empty", [](const Shape& s, TensorOptions o) { return empty(s, o, "empty"); }, "Memory as it is.");
  def_like(m, "zeros_like", zeros_like, "Zeros of x's shape, dtype and device.");
  def_like(m, "ones_like", ones_like, "Ones of x's shape, dtype and device.");
  def_like(
      m, "empty_like", [](const Tensor& x) { return empty_like(x, "empty_like"); }, "Memory as it is.");
  m.def(
      "eye",
      [](int64_t n, std::optional<int64_t> columns, Dtype dtype, const DeviceName& device) {
        return eye(n, columns.value_or(-1), options_of(dtype, device));
      },
      "n"_a, "m"_a = nb::none(), nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), Waits(),
      "1 on the diagonal.");
  m.def(
      "linspace",
      [](double start, double end, int64_t steps, Dtype dtype, const DeviceName& device) {
        return linspace(start, end, steps, options_of(dtype, device));
      },
      "start"_a, "end"_a, "steps"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), Waits(),
      "`steps` numbers from start to end, both included.");
  m.def("one_hot", one_hot, "labels"_a, "num_classes"_a, "dtype"_a = DType::f32, Waits(),
        "Row i has a one in column labels[i].");
}

Tensor arange_of(nb::args given, Dtype dtype, const DeviceName& device) {
  SG_CHECK(given.size() >= 1 && given.size() <= 3, "arange: ", given.size(),
           " numbers; it takes an end, a start and an ", "end, or these and a step");
  constexpr int64_t kLargest = int64_t(1) << 53;
  bool whole = true;
  double numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < given.size(); ++i) {
    SG_CHECK(nb::try_cast(given[i], numbers[given.size() == 1 ? 1 : i]), "arange: '", nb::repr(given[i]).c_str(),
             "' is no number");
    nb::object index = integer_of(given[i]);
    whole = whole && index.is_valid();
    int64_t integer = 0;
    SG_CHECK(!whole || (nb::try_cast(index, integer) && integer >= -kLargest && integer <= kLargest),
             "arange: ", nb::repr(given[i]).c_str(), " is beyond ±2^53, where numbers would be rounded");
  }
  Wait wait;
  return arange(numbers[0], numbers[1], numbers[2], options_of(dtype, device, whole ? DType::i64 : DType::f32));
}

void bind_threads(nb::module_& m) {
  m.def(
      "set_num_threads", [](int threads) { enter_context(), context().set_threads(threads); }, "threads"_a,
      "Of this rank's computations from now on. Without it: OMP_NUM_THREADS, or all cores that it may use.");
  m.def(
      "get_num_threads", [] { return enter_context(), context().threads(); },
      "How many threads this rank computes with.");
}

// How often the context's seed was set, and what was made since without one of its own, by kind; under the GIL.
struct Made {
  int64_t seedings = 0;
  std::map<std::string, int64_t> counts = {};
};

void bind_seeds(nb::module_& m) {
  m.def("_serial", [](const std::string& kind) {
    enter_context();
    return context().slot<Made>().counts[kind]++;
  });
  m.def("_seedings", [] {
    enter_context();
    return context().slot<Made>().seedings;
  });
  m.def(
      "manual_seed",
      [](uint64_t seed) {
        enter_context();
        Made& made = context().slot<Made>();
        made = {made.seedings + 1};
        Wait wait;
        manual_seed(seed);
      },
      "seed"_a,
      "Random numbers follow from it from now on. On several ranks all give the same, and draw the same numbers.");
  m.def(
      "initial_seed", [] { return context().seed(); }, Enters(), "What random numbers follow from.");
}

void bind_random(nb::module_& m) {
  def_drawn(
      m, "randn", [](const Shape& s, std::string_view n, TensorOptions o) { return randn(s, n, o); },
      "Standard normal numbers: the next of the sequence `name`, the same on every rank.");
  def_drawn(
      m, "rand", [](const Shape& s, std::string_view n, TensorOptions o) { return rand(s, n, o); },
      "Uniform numbers in [0, 1), likewise.");
  m.def("randn_like", randn_like, "x"_a, "name"_a = "", Waits(), "randn of x's shape, dtype and device.");
  m.def("rand_like", rand_like, "x"_a, "name"_a = "", Waits(), "rand of x's shape, dtype and device.");
  m.def(
      "randint",
      [](int64_t low, nb::handle high, std::optional<nb::object> size, std::string_view name, Dtype dtype,
         const DeviceName& device) {
        std::vector<int64_t> extents = numbers_of("randint", size ? *size : high);
        std::vector<int64_t> ends = size ? numbers_of("randint", high) : std::vector<int64_t>{low};
        SG_CHECK(ends.size() == 1, "randint: the upper end is a list; write randint(low, high, size)");
        Wait wait;
        return randint(size ? low : 0, ends[0], shape_of(extents), name, options_of(dtype, device, DType::i64));
      },
      "low"_a, "high"_a, "size"_a = nb::none(), nb::kw_only(), "name"_a = "", "dtype"_a = nb::none(),
      "device"_a = nb::none(), "Integers in [low, high), or with randint(high, size) in [0, high).");
  m.def(
      "randperm", [](int64_t n, std::string_view name) { return randperm(n, name); }, "n"_a, nb::kw_only(),
      "name"_a = "", Waits(), "0 … n - 1 in random order.");
  m.def("bernoulli", bernoulli, "p"_a, "name"_a = "", Waits(), "1 with probability p[i], else 0.");
  m.def(
      "multinomial",
      [](const Tensor& p, int64_t count, bool replacement, std::string_view name) {
        return multinomial(p, count, name, replacement);
      },
      "p"_a, "num_samples"_a, "replacement"_a = false, "name"_a = "", Waits(),
      "Columns drawn from each row, with probabilities in the ratio of its numbers.");
}

}  // namespace

void bind_creation(nb::module_& m) {
  bind_filled(m);
  bind_full(m);
  m.def("arange", arange_of, "numbers"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
        "arange(end), arange(start, end) or arange(start, end, step): int64 where all are integers, else float32.");
  bind_threads(m);
  bind_seeds(m);
  bind_random(m);
}

}  // namespace shardgrad::python
