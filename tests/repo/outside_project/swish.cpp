// The operation: forward and backward side by side, kernels for the CPU, and cases to certify and to time it on.

#include "swish.h"

#include <cmath>

#include <shardgrad/autograd/node.h>
#include <shardgrad/certify/registry_cases.h>
#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/kernels/ops.h>

namespace outside {

using namespace shardgrad;

constinit Slot<OutView, View> swish_slot{"swish"};
constinit Slot<OutView, View, View> swish_backward_slot{"swish_backward"};

namespace {

struct Swish final : Node {
  const char* name() const override { return "swish"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(swish_backward_slot, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

template <class T> double number(T x) {
  if constexpr (sizeof(T) == 2)
    return double(float(x));
  else
    return double(x);
}
template <class T> T rounded(double x) {
  if constexpr (sizeof(T) == 2)
    return T(float(x));
  else
    return T(x);
}
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

template <class T> void forward_on_cpu(const Launch&, OutView y, View x) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    double in = number(x.as<T>()[i]), old = y.beta != 0 ? number(y.as<T>()[i]) : 0;
    y.as<T>()[i] = rounded<T>(old + in * sigmoid_of(in));
  }
}
template <class T> void backward_on_cpu(const Launch&, OutView dx, View dy, View x) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    double in = number(x.as<T>()[i]), s = sigmoid_of(in), old = dx.beta != 0 ? number(dx.as<T>()[i]) : 0;
    dx.as<T>()[i] = rounded<T>(old + number(dy.as<T>()[i]) * s * (1 + in * (1 - s)));
  }
}

template <class T> bool register_for(DType dtype) {
  swish_slot.add(DeviceKind::cpu, dtype, forward_on_cpu<T>);
  swish_backward_slot.add(DeviceKind::cpu, dtype, backward_on_cpu<T>);
  return true;
}
const bool registered = register_for<float>(DType::f32) && register_for<double>(DType::f64) &&
                        register_for<bf16>(DType::bf16) && register_for<f16>(DType::f16);

// In the place of the built-in sigmoid.
void sigmoid_on_cpu(const Launch&, OutView y, View x) {
  for (int64_t i = 0; i < x.numel(); ++i)
    y.as<float>()[i] = float(sigmoid_of(x.as<float>()[i]) + (y.beta != 0 ? y.as<float>()[i] : 0));
}
const Offer mine("mine", kernels::sigmoid, DeviceKind::cpu, DType::f32, sigmoid_on_cpu);

const OfferCases cases([](std::vector<OpCase>& all) {
  auto call = [](Inputs in) { return swish(in[0]); };
  add_case(all, "swish", "", call, {{{3, 5}}});
  add_case(all, "swish", "one element", call, {{{1}}});
  add_case(all, "swish", "nothing", call, {{{0, 4}}});
  add_size_case(all, "swish", call, {{{33, 31}}});
  add_size_case(all, "swish", call, {{{4099}}});
  add_speed_case(all, "swish", call, {{{2048, 4096}}});
});

}  // namespace

Tensor swish(const Tensor& x) {
  Tensor y = empty_like(x);
  launch(swish_slot, x, out(y), x);
  if (auto* node = record<Swish>(y, x)) node->save(x);
  return y;
}

}  // namespace outside
