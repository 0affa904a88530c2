#pragma once
// The seam that every .cu file includes: one source for nvcc and for the simulator (kernels/sim), with no #ifdef in the
// kernels. Rules for kernels are in docs/kernel-contract.md; in short:
//
//     namespace shardgrad::SG_DEVICE {                    // `gpu` under nvcc, `sim` under a host compiler
//     namespace {
//     template <class T> __global__ void twice_kernel(T* y, const T* x, int64_t n) {
//       int64_t i = thread_number();
//       if (i < n) store(y + i, 2 * load(x + i), false);
//     }
//     void twice(const Launch& how, OutView y, View x) {  // what stands in the kernel table
//       launch<twice_kernel<float>>(how, {blocks_for(y.numel()), kBlock}, y.as<float>(), x.as<float>(), y.numel());
//     }
//     const Registered registered = add_kernel<twice>(kernels::twice, kWideFloats);
//     }  // namespace
//     }  // namespace shardgrad::SG_DEVICE
//
// Both sides give: launch<kernel>(how, {grid, block, shared bytes}, args…); dynamic_shared<T>(); CUDA's own words
// (threadIdx, __shared__, __syncthreads, __shfl_*_sync, atomicAdd, …); check_index; Scratch; writes_a_part_of(output);
// add_kernel.
// nvcc needs -std=c++20 --expt-relaxed-constexpr. A host compiler needs -x c++ -fsanitize=thread (see
// docs/simulator.md).

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/kernels/ops.h>

#ifdef __CUDACC__
#include <shardgrad/kernels/cuda/gpu.h>
#else
#include <shardgrad/kernels/sim/language.h>
#endif

namespace shardgrad::SG_DEVICE {

inline constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
inline constexpr DType kWideFloats[] = {DType::f32, DType::f64};
inline constexpr DType kIntegers[] = {DType::i32, DType::i64, DType::u8};
inline constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

inline constexpr int kBlock = 256;  ///< threads of a block where nothing speaks for another number
inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// Blocks for `count` threads in all. CUDA counts blocks along x in 31 bits.
inline unsigned blocks_for(int64_t count, int64_t block = kBlock) {
  int64_t blocks = (count + block - 1) / block;
  SG_CHECK(blocks < (int64_t(1) << 31), "a kernel over ", count, " elements needs more than 2^31 blocks");
  return unsigned(blocks);
}

/// This thread's number in a grid of one dimension.
__device__ inline int64_t thread_number() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }

/// The type in which elements of type T are computed: float for f32, bf16, f16; double; unsigned integers wrap.
template <class T>
using Compute =
    std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<std::is_integral_v<T>, uint64_t, float>>;

/// The type of a sum of elements of type T: i64 for integers.
template <class T> using SumOf = std::conditional_t<std::is_integral_v<T>, int64_t, T>;

/// Converts between any two element types. Floats to integers truncate; what does not fit becomes the nearest integer
/// that does, NaN becomes 0.
template <class To, class From> __host__ __device__ inline To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_class_v<From>) {
    return convert<To>(widen(value));
  } else if constexpr (std::is_class_v<To>) {
    return narrow<To>(float(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    if (!(value == value)) return 0;
    if (value < From(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (value >= From(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return To(value);
  } else {
    return To(value);
  }
}

/// Reads an element in its computing type.
template <class T> __device__ inline Compute<T> load(const T* from) {
  T element = *from;
  return convert<Compute<T>>(element);
}

/// *to = value, or *to += value; rounds once.
template <class T> __device__ inline void store(T* to, Compute<T> value, bool accumulate) {
  *to = convert<T>(Compute<T>(accumulate ? load(to) + value : value));
}

/// N neighbours that move in one instruction, or 16 bytes of them at a time.
template <class T, int N> struct alignas(std::min<size_t>(sizeof(T) * N, 16)) Pack { T at[N]; };

struct Registered {
  Registered() {}
};
/// Enters an operation into the kernel table for this device and these dtypes.
template <auto Operation, class... Args> Registered add_kernel(Slot<Args...>& slot, std::span<const DType> dtypes) {
  for (DType dtype : dtypes) slot.add(kThisDevice, dtype, entry_of<Operation>(slot));
  return {};
}
/// Offers an operation in the place of a built-in one, under a name (kernels/alternatives.h).
template <auto Operation, class... Args>
Registered offer_kernel(const char* name, Slot<Args...>& slot, std::span<const DType> dtypes) {
  for (DType dtype : dtypes) Offer(name, slot, kThisDevice, dtype, entry_of<Operation>(slot));
  return {};
}

/// Calls visit.operator()<T>() for the floating dtypes.
template <class Visitor> decltype(auto) dispatch_floats(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::f64:
      return visit.template operator()<double>();
    case DType::bf16:
      return visit.template operator()<bf16>();
    case DType::f16:
      return visit.template operator()<f16>();
    default:
      return visit.template operator()<float>();
  }
}

}  // namespace shardgrad::SG_DEVICE
