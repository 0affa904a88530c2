#pragma once
// The CPU's kernels as those of the pretended GPU, for what a small training run and its collectives need. Included by
// one file of a program.

#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/kernels/ops.h>

#include "tests/fake_cuda/fake_cuda.h"

namespace shardgrad::fake_kernels {

template <class Operand> void note_memory(std::vector<const void*>& memory, const Operand& operand) {
  if constexpr (std::is_same_v<Operand, View> || std::is_same_v<Operand, OutView>)
    if (operand.defined() && operand.bytes() > 0) memory.push_back(operand.data);
  if constexpr (OperandList<Operand>)
    for (const auto& each : *operand) each.for_each_operand([&](const auto& one) { note_memory(memory, one); });
}

// The slot's kernel for the CPU, run on the GPU's stream when its turn comes.
template <auto& slot, DType dtype, class... Args> void queued(const Launch& how, Args... args) {
  Context* owner = Context::current();
  std::vector<const void*> memory;
  (note_memory(memory, args), ...);
  auto work = [=] {
    ContextScope scope(*owner);
    slot.find(DeviceKind::cpu, dtype)(Launch{1}, args...);
  };
  fake_cuda::launch(static_cast<cudaStream_t>(how.native_stream), work, memory);
}
template <auto& slot, DType... dtypes, class... Args> bool add(Slot<Args...>&) {
  (slot.add(DeviceKind::cuda, dtypes, queued<slot, dtypes, Args...>), ...);
  return true;
}
template <auto&... slots> bool add_all() { return (add<slots, DType::f32, DType::f64>(slots) && ...); }
template <auto&... slots> bool add_of_integers() { return (add<slots, DType::i64>(slots) && ...); }
inline const bool registered =
    add_all<kernels::fill, kernels::copy, kernels::cast, kernels::expand, kernels::sum_to, kernels::random_uniform,
            kernels::random_normal, kernels::add, kernels::sub, kernels::mul, kernels::affine, kernels::relu,
            kernels::gelu_tanh, kernels::tanh, kernels::relu_backward, kernels::gelu_tanh_backward,
            kernels::tanh_backward, kernels::matmul, kernels::linear_backward_input, kernels::linear_backward_weight,
            kernels::mse, kernels::mse_backward, kernels::sgd, kernels::adam, kernels::norm_powers,
            kernels::join_values, kernels::clip_scale, kernels::paste, kernels::dropout>();
inline const bool registered_of_text =
    add_all<kernels::index_select, kernels::index_add, kernels::layer_norm, kernels::layer_norm_backward,
            kernels::add_layer_norm, kernels::attention, kernels::attention_backward, kernels::cross_entropy,
            kernels::cross_entropy_backward>() &&
    add_of_integers<kernels::fill, kernels::cumsum, kernels::affine>();

template <DType dtype> void queued_tree_sum(const Launch& how, OutView y, kernels::TreeSumArgs args) {
  Context* owner = Context::current();
  std::vector<const void*> parts(args.parts, args.parts + args.count);
  fake_cuda::launch(static_cast<cudaStream_t>(how.native_stream), [=] {
    ContextScope scope(*owner);
    kernels::tree_sum.find(DeviceKind::cpu, dtype)(Launch{1}, y, {parts.data(), int(parts.size()), dtype});
  });
}
template <DType... dtypes> bool add_tree_sums() {
  (kernels::tree_sum.add(DeviceKind::cuda, dtypes, queued_tree_sum<dtypes>), ...);
  return true;
}
inline const bool sums_registered =
    add_tree_sums<DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8>();

}  // namespace shardgrad::fake_kernels
