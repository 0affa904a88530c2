#pragma once
// Registers one kernel for several dtypes of device cpu.

#include <span>

#include <shardgrad/kernels/ops.h>

namespace shardgrad::cpu {

inline constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
inline constexpr DType kWideFloats[] = {DType::f32, DType::f64};
inline constexpr DType kIntegers[] = {DType::i32, DType::i64, DType::u8};
inline constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

struct Each {
  template <class... Args>
  Each(Slot<Args...>& slot, std::span<const DType> dtypes, typename Slot<Args...>::Kernel kernel) {
    for (DType dtype : dtypes) slot.add(DeviceKind::cpu, dtype, kernel);
  }
};

}  // namespace shardgrad::cpu
