#include <shardgrad/certify/registry.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/certify/registry_cases.h>
#include <shardgrad/core/rng.h>

namespace shardgrad {

bool OpCase::differentiable() const {
  return std::ranges::any_of(inputs, [](const InputSpec& in) { return in.kind == InputSpec::Kind::differentiable; });
}

// Numbers of 8 significant bits, so that rounding to any dtype changes none of them.
static double draw(const InputSpec& spec, uint64_t stream, size_t index) {
  double value = spec.low + (spec.high - spec.low) * double(unit_float(philox(7, stream, index)[0]));
  if (spec.kind == InputSpec::Kind::index || spec.kind == InputSpec::Kind::flag) return std::floor(value);
  int exponent = 0;
  double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::round(mantissa * 256), exponent - 8);
}

Tensor empty_unaligned(const Shape& shape, TensorOptions options) {
  return empty({shape.numel() + 1}, options).rows(1, shape.numel() + 1).view(shape);
}

std::vector<Tensor> OpCase::make_inputs(DType dtype, Device device) const {
  std::vector<Tensor> tensors;
  for (const InputSpec& spec : inputs) {
    std::vector<double> values(static_cast<size_t>(spec.shape.numel()));
    uint64_t stream = stream_of(concat(name(), " ", tensors.size()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = draw(spec, stream, i);
    DType kind = spec.kind == InputSpec::Kind::index  ? DType::i64
                 : spec.kind == InputSpec::Kind::flag ? DType::u8
                                                      : dtype;
    TensorOptions options{kind, device};
    tensors.push_back(unaligned ? empty_unaligned(spec.shape, options) : empty(spec.shape, options));
    if (device != kMeta) copy_into(tensors.back(), from_vector(values, spec.shape, {DType::f64, kCpu}).to(kind));
  }
  return tensors;
}

// Written while libraries are loaded, like the kernel table.
static std::vector<void (*)(std::vector<OpCase>&)>& offered_cases() {
  static std::vector<void (*)(std::vector<OpCase>&)> offered;
  return offered;
}
OfferCases::OfferCases(void (*add)(std::vector<OpCase>&)) { offered_cases().push_back(add); }

std::vector<OpCase> op_cases(Purpose purpose) {
  std::vector<OpCase> cases;
  add_creation_cases(cases);
  add_elementwise_cases(cases);
  add_function_cases(cases);
  add_shape_cases(cases);
  add_reduction_cases(cases);
  add_order_cases(cases);
  add_image_cases(cases);
  add_layer_cases(cases);
  add_transformer_cases(cases);
  add_speed_cases(cases);
  for (auto add : offered_cases()) add(cases);
  std::erase_if(cases, [purpose](const OpCase& each) { return each.purpose != purpose; });
  return cases;
}

}  // namespace shardgrad
