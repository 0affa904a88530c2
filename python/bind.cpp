#include <shardgrad/python/bind.h>

#include <shardgrad/autograd/ops/common.h>

namespace shardgrad::python {
namespace {

int64_t number_of(const char* op, nb::handle given) {
  int64_t number = 0;
  SG_CHECK(nb::try_cast<int64_t>(given, number), op, ": '", nb::repr(given).c_str(),
           "' is given where an integer belongs");
  return number;
}

bool is_list(nb::handle given) { return nb::isinstance<nb::list>(given) || nb::isinstance<nb::tuple>(given); }

}  // namespace

std::vector<int64_t> numbers_of(const char* op, nb::handle given) {
  if (!is_list(given)) return {number_of(op, given)};
  std::vector<int64_t> numbers;
  for (nb::handle each : given) numbers.push_back(number_of(op, each));
  return numbers;
}

std::vector<int64_t> numbers_of(const char* op, const nb::args& given) {
  return given.size() == 1 ? numbers_of(op, nb::handle(given[0])) : numbers_of(op, nb::handle(given));
}

std::vector<int> dims_of(const char* op, nb::handle given) {
  std::vector<int64_t> numbers = numbers_of(op, given);
  for (int64_t number : numbers)
    SG_CHECK(-kMaxDims <= number && number <= kMaxDims, op, ": there is no dimension ", number,
             "; tensors have at most ", kMaxDims);
  return {numbers.begin(), numbers.end()};
}

Shape broadcast_of(const char* op, const Tensor& x, std::vector<int64_t> extents) {
  int more = int(extents.size()) - x.ndim();
  for (int d = 0; d < int(extents.size()); ++d)
    if (int64_t& extent = extents[size_t(d)]; extent == -1) {
      SG_CHECK(d >= more, op, ": -1 keeps the extent of a dimension, and ", x, " has no dimension ", d - more);
      extent = x.size(d - more);
    }
  return shape_of(extents);
}

nb::tuple to_tuple(const Shape& shape) {
  nb::list extents;
  for (int64_t extent : shape) extents.append(extent);
  return nb::tuple(extents);
}

Scalar scalar_of(const Number& number) {
  return std::visit([](auto value) { return Scalar(value); },
                    static_cast<const std::variant<int64_t, double>&>(number));
}

bool loses_gradient(nb::handle given) noexcept {
  return nb::isinstance<Tensor>(given) && nb::cast<const Tensor&>(given).requires_grad() && grad_enabled();
}

void fail_of_lost_gradient() {
  fail("a number belongs where a tensor with a gradient is given, which would be lost; give its item(), or write it ",
       "with operations of tensors");
}

Number number_in(const Operand& operand) {
  if (auto* integer = std::get_if<int64_t>(&operand)) return *integer;
  return std::get<double>(operand);
}

Scalar scalar_beside(const char* op, const Tensor& x, const Number& number) {
  Scalar value = scalar_of(number);
  SG_CHECK(is_floating(x.dtype()) || std::holds_alternative<int64_t>(number), op, ": the float ", value, " beside ", x,
           ", a tensor of integers; convert it with .to(float32), or write an integer");
  return value;
}

Tensor beside(const char* op, const Tensor& x, const Operand& operand) {
  if (auto* tensor = std::get_if<Tensor>(&operand)) return *tensor;
  return number_beside(op, x, scalar_beside(op, x, number_in(operand)));
}

Reduction reduction_of(std::string_view name) {
  SG_CHECK(name == "mean" || name == "sum" || name == "none", "reduction '", name, "' is none of mean, sum, none");
  return name == "mean" ? Reduction::mean : name == "sum" ? Reduction::sum : Reduction::none;
}

std::string name_of_device(Device device) { return concat(device); }

Device place_of(const GivenDevice& given) {
  SG_CHECK(!given.number, "device ", *given.number, ": a rank has one device; write 'cuda'");
  size_t colon = given.name.find(':');
  std::string name = given.name.substr(0, colon);
  SG_CHECK(colon == std::string::npos || given.name.substr(colon) == ":0", "device: there is no '", given.name,
           "', for a rank has one device; write '", name, "'");
  return parse_device(name);
}

Destination destination_of(const nb::args& given, std::optional<DType> dtype, const DeviceName& device) {
  Destination found{dtype, device ? std::optional(place_of(*device)) : std::nullopt};
  bool said = false;  // a bool is PyTorch's non_blocking, after what it is about
  for (nb::handle each : given) {
    GivenDevice place;
    DType type{};
    if (nb::try_cast(each, place))
      found.device = place_of(place);
    else if (nb::try_cast(each, type))
      found.dtype = type;
    else
      SG_CHECK(said && nb::isinstance<nb::bool_>(each), "to: '", nb::repr(each).c_str(),
               "' is neither a dtype nor the name of a device");
    said = true;
  }
  return found;
}

Device gpu_of(const DeviceName& given) {
  if (!given || given->number == 0) return kCuda;
  Device device = place_of(*given);
  SG_CHECK(device.kind == DeviceKind::cuda, "cuda: '", given->name, "' is no GPU");
  return device;
}

TensorOptions options_of(std::optional<DType> dtype, const DeviceName& device, DType otherwise) {
  TensorOptions options(dtype.value_or(otherwise));
  if (device) options.device = place_of(*device);
  return options;
}

}  // namespace shardgrad::python
