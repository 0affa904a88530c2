#pragma once
// From tensors to a kernel: resolves operands to views, looks the kernel up, and runs it on the device's compute
// stream. Addresses are resolved when work is queued. This is the only hop between an operation and its kernel. A fault
// of a GPU is rethrown with the operation, its operands and the rank.
//
//     launch(kernels::mul, a, out(y), a, b);          // keyed by a's device and dtype

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/kernels/table.h>

namespace shardgrad {

/// A destination tensor and whether the kernel adds to it (beta 1) or overwrites it (beta 0).
struct Out {
  Tensor tensor;
  float beta = 0;
};
inline Out out(Tensor tensor, float beta = 0) { return {std::move(tensor), beta}; }
/// A result nobody wants.
inline Out unwanted() { return {}; }

namespace detail {

template <class Parameter, class Argument> Parameter operand(const Argument& argument) {
  if constexpr (std::is_same_v<Parameter, View>)
    return argument.defined() ? argument.in() : View{};
  else if constexpr (std::is_same_v<Parameter, OutView>)
    return argument.tensor.defined() ? argument.tensor.out(argument.beta) : OutView{};
  else
    return static_cast<Parameter>(argument);
}

template <class Operand> void note_access(const Operand& operand, Access* accesses, size_t& count) {
  if constexpr (std::is_same_v<Operand, View>) {
    if (operand.defined()) accesses[count++] = {operand.data, operand.bytes(), false};
  } else if constexpr (std::is_same_v<Operand, OutView>) {
    if (operand.defined()) accesses[count++] = {operand.data, operand.bytes(), true};
  }
}

template <class Operand> void describe_operand(std::string& text, const Operand& operand) {
  if constexpr (std::is_same_v<Operand, View> || std::is_same_v<Operand, OutView>)
    if (operand.defined()) text += concat(text.empty() ? "" : ", ", operand.dtype, operand.shape);
}

template <class... Operands>
[[noreturn, gnu::cold]] void rethrow_fault(const char* op, const DeviceFault& fault,
                                           const std::tuple<Operands...>& operands) {
  std::string text;
  std::apply([&](const auto&... each) { (describe_operand(text, each), ...); }, operands);
  throw DeviceFault(fault.kind(), concat(op, '(', text, ") on rank ", context().rank(), ": ", fault.what()));
}

}  // namespace detail

/// Runs the slot's kernel for the device and dtype of `key`. On device meta nothing runs.
template <class... Parameters, class... Arguments>
void launch(const Slot<Parameters...>& slot, const Tensor& key, const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "arguments do not match the slot's signature");
  Device device = key.device();
  if (device.kind == DeviceKind::meta) return;
  Context& ctx = context();
  auto kernel = slot.find(device.kind, key.dtype());
  Stream& stream = ctx.backend(device).compute();
  Launch how{ctx.threads(), stream.native()};
  if (stream.is_inline() && !ctx.checker()) [[likely]] {
    kernel(how, detail::operand<Parameters>(arguments)...);
    return;
  }
  std::tuple<Parameters...> operands{detail::operand<Parameters>(arguments)...};
  std::array<Access, sizeof...(Parameters)> accesses;
  size_t count = 0;
  std::apply([&](const auto&... each) { (detail::note_access(each, accesses.data(), count), ...); }, operands);
  auto work = [kernel, how, operands] { std::apply(kernel, std::tuple_cat(std::tuple(how), operands)); };
  try {
    stream.run(slot.name(), std::move(work), {accesses.data(), count});
  } catch (const DeviceFault& fault) {
    detail::rethrow_fault(slot.name(), fault, operands);
  }
}

}  // namespace shardgrad
