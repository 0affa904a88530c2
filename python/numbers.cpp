// Numbers that stand in Python's lists: its own, NumPy's, and tensors of one.

#include <cmath>

#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {

// NumPy's truths are known by their type's name, which was another one before NumPy 2: no import for those without it.
bool is_truth(nb::handle given) noexcept {
  std::string_view type = Py_TYPE(given.ptr())->tp_name;
  return PyBool_Check(given.ptr()) || type == "numpy.bool" || type == "numpy.bool_";
}

nb::object integer_of(nb::handle given) {
  if (!PyIndex_Check(given.ptr())) return {};
  nb::object integer = nb::steal(PyNumber_Index(given.ptr()));
  if (!integer.is_valid()) PyErr_Clear();  // arrays and tensors of one fraction have an __index__ that refuses
  return integer;
}

namespace {

struct Numbers {
  static constexpr const char* kDepths = "tensor: rows of different depths: numbers stand beside lists of numbers";
  std::vector<double> floats;
  std::vector<int64_t> integers;
  bool whole = true, truths = true;
  std::vector<int64_t> extents;

  void add(nb::handle given) {
    int64_t integer = 0;
    double number = 0;
    bool truth = is_truth(given);
    nb::object index = truth ? nb::int_(PyObject_IsTrue(given.ptr())) : integer_of(given);
    bool is_integer = index.is_valid();
    SG_CHECK(!is_integer || nb::try_cast(index, integer), "tensor: ", nb::repr(given).c_str(),
             " does not fit into int64");
    SG_CHECK(is_integer || nb::try_cast(given, number) || PyNumber_Check(given.ptr()), "tensor: '",
             nb::repr(given).c_str(), "' is no number");
    if (!is_integer) number = nb::cast<double>(nb::float_(given));
    truths = truths && truth;
    whole = whole && is_integer;
    integers.push_back(integer);
    floats.push_back(is_integer ? double(integer) : number);
  }

  void read(nb::handle given, size_t dim) {
    Deeper deeper;
    if (!nb::isinstance<nb::list>(given) && !nb::isinstance<nb::tuple>(given)) {
      SG_CHECK(dim == extents.size(), kDepths);
      add(given);
      return;
    }
    int64_t count = int64_t(nb::len(given));
    if (dim == extents.size() && floats.empty()) extents.push_back(count);
    SG_CHECK(dim < extents.size(), kDepths);
    SG_CHECK(extents[dim] == count, "tensor: rows of different lengths: one has ", count, " entries, another ",
             extents[dim]);
    for (nb::handle each : given) read(each, dim + 1);
  }

  // Fractions are cut. As in PyTorch the integers -255 to -1 are 1 to 255 in uint8.
  void check_fit(DType dtype) const {
    if (is_floating(dtype) || (whole && dtype == DType::i64)) return;
    double end = dtype == DType::u8 ? 0x1p8 : dtype == DType::i32 ? 0x1p31 : 0x1p63;
    double first = dtype != DType::u8 ? -end : whole ? 1 - end : 0;
    for (double number : floats)
      SG_CHECK(std::trunc(number) >= first && std::trunc(number) < end, "tensor: ", number, " does not fit into ",
               dtype, "; give another dtype, or other numbers");
  }
};

}  // namespace

Tensor tensor_of_numbers(nb::handle data, std::optional<DType> dtype, const DeviceName& device) {
  Numbers numbers;
  numbers.read(data, 0);
  int64_t count = 1;
  for (int64_t extent : numbers.extents) count *= extent;
  SG_CHECK(int64_t(numbers.floats.size()) == count, Numbers::kDepths);
  DType own = numbers.floats.empty() ? DType::f32
              : numbers.truths       ? DType::u8
              : numbers.whole        ? DType::i64
                                     : DType::f32;
  TensorOptions options = options_of(dtype, device, own);
  numbers.check_fit(options.dtype);
  Wait wait;
  NoGrad no_grad;
  Shape shape = shape_of(numbers.extents);
  Tensor values = numbers.whole && !is_floating(options.dtype)
                      ? from_vector(numbers.integers, shape, {DType::i64, kCpu})
                      : from_vector(numbers.floats, shape, {DType::f64, kCpu});
  Tensor result = values.to(options.dtype);
  return result.to(options.device.value_or(context().default_device()));
}

}  // namespace shardgrad::python
