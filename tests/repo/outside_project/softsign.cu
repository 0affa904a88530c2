// An operation in one file: y = x / (1 + |x|), with its gradient, its kernels and the inputs it is certified on.
//
// The file is compiled once for each kind of device that runs kernels (the simulator, GPUs), so what is not a kernel is
// `inline`: a program has it once. Kernels stand in the device's namespace; the last line enters them in the table.

#include <cmath>

#include <shardgrad/autograd/node.h>
#include <shardgrad/certify/registry_cases.h>
#include <shardgrad/kernels/cuda/launch.h>

namespace outside {

using namespace shardgrad;

inline constinit Slot<OutView, View> softsign_slot{"softsign"};                          // y = f(x)
inline constinit Slot<OutView, View, View> softsign_backward_slot{"softsign_backward"};  // dx = dy · f'(x)

struct Softsign final : Node {
  const char* name() const override { return "softsign"; }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(softsign_backward_slot, dy[0], dx[0].write(), dy[0], saved(0));
  }
};

inline Tensor softsign(const Tensor& x) {
  Tensor y = empty_like(x);
  launch(softsign_slot, x, out(y), x);
  if (auto* node = record<Softsign>(y, x)) node->save(x);
  return y;
}

// For the CPU, and what kernels are compared with.
template <class T> void softsign_on_cpu(const Launch&, OutView y, View x) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    T in = x.as<T>()[i], old = y.beta != 0 ? y.as<T>()[i] : 0;
    y.as<T>()[i] = old + in / (1 + std::abs(in));
  }
}
template <class T> void softsign_backward_on_cpu(const Launch&, OutView dx, View dy, View x) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    T slope = 1 / (1 + std::abs(x.as<T>()[i])), old = dx.beta != 0 ? dx.as<T>()[i] : 0;
    dx.as<T>()[i] = old + dy.as<T>()[i] * slope * slope;
  }
}
template <class T> bool softsign_for_cpu(DType dtype) {
  softsign_slot.add(DeviceKind::cpu, dtype, Isa::plain, softsign_on_cpu<T>);
  softsign_backward_slot.add(DeviceKind::cpu, dtype, Isa::plain, softsign_backward_on_cpu<T>);
  return true;
}
inline const bool softsign_is_registered = softsign_for_cpu<float>(DType::f32) && softsign_for_cpu<double>(DType::f64);

inline const OfferCases softsign_cases([](std::vector<OpCase>& all) {
  auto call = [](Inputs in) { return softsign(in[0]); };
  add_case(all, "softsign", "", call, {{{3, 5}}});
  add_case(all, "softsign", "nothing", call, {{{0, 4}}});
  add_size_case(all, "softsign", call, {{{1025}}});
});

}  // namespace outside

namespace shardgrad::SG_DEVICE {
namespace {

// Moves two elements per element.
template <class T> __global__ void softsign_kernel(T* y, const T* x, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Compute<T> in = load(x + i);
  store(y + i, in / (1 + std::abs(in)), accumulate);
}

// Moves three.
template <class T>
__global__ void softsign_backward_kernel(T* dx, const T* dy, const T* x, int64_t n, bool accumulate) {
  int64_t i = thread_number();
  if (i >= n) return;
  Compute<T> slope = 1 / (1 + std::abs(load(x + i)));
  store(dx + i, load(dy + i) * slope * slope, accumulate);
}

void softsign(const Launch& how, OutView y, View x) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<softsign_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, y.as<T>(), x.as<T>(), x.numel(), y.beta != 0);
  });
}

void softsign_backward(const Launch& how, OutView dx, View dy, View x) {
  dispatch_floats(x.dtype, [&]<class T>() {
    launch<softsign_backward_kernel<T>>(how, {blocks_for(x.numel()), kBlock}, dx.as<T>(), dy.as<T>(), x.as<T>(),
                                        x.numel(), dx.beta != 0);
  });
}

const Registered registered[] = {add_kernel<softsign>(outside::softsign_slot, kFloats),
                                 add_kernel<softsign_backward>(outside::softsign_backward_slot, kFloats)};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
