#pragma once
// launch.h's words under nvcc.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>

#include <shardgrad/core/context.h>
#include <shardgrad/core/cuda/error.h>
#include <shardgrad/core/cuda/launching.h>
#include <shardgrad/kernels/cuda/library.h>
#include <shardgrad/kernels/workspace.h>

#define SG_DEVICE gpu
/// Before a loop whose array must lie in registers.
#define SG_UNROLL _Pragma("unroll")

namespace shardgrad::gpu {

inline constexpr DeviceKind kThisDevice = DeviceKind::cuda;

/// Grid, block, and bytes of dynamic shared memory.
struct Config {
  dim3 grid, block;
  size_t shared = 0;
};

/// Queues the kernel. Throws DeviceFault when the launch itself is refused; who runs the operation adds its name and
/// operands.
template <auto Kernel, class... Args> void launch(const Launch& how, Config config, Args... args) {
  if (config.grid.x == 0 || config.grid.y == 0 || config.grid.z == 0) return;
  cudaError_t status = cudaSuccess;
  if (config.shared > 48 * 1024)
    status = cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(config.shared));
  if (status == cudaSuccess) {
    Kernel<<<config.grid, config.block, config.shared, static_cast<cudaStream_t>(how.native_stream)>>>(args...);
    status = cudaGetLastError();
  }
  if (status != cudaSuccess) [[unlikely]]
    throw_cuda(status, concat("launch of (", config.grid.x, ", ", config.grid.y, ", ", config.grid.z, ") blocks of (",
                              config.block.x, ", ", config.block.y, ", ", config.block.z, ") threads with ",
                              config.shared, " bytes of shared memory"));
}

/// bf16 and f16 to f32 and back, rounding to nearest even.
template <class Half> __host__ __device__ inline float widen(Half value) {
  if constexpr (std::is_same_v<Half, bf16>)
    return __bfloat162float(__ushort_as_bfloat16(value.bits));
  else
    return __half2float(__ushort_as_half(value.bits));
}
template <class Half> __host__ __device__ inline Half narrow(float value) {
  Half half;
  if constexpr (std::is_same_v<Half, bf16>)
    half.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  else
    half.bits = __half_as_ushort(__float2half_rn(value));
  return half;
}

/// Adds a (16, 16) · b (16, 8) of bf16 or f16 to sums (16, 8), on tensor cores: all lanes of the warp call. Lane
/// 4·g + t has, two neighbours in a register: of a's rows g and g + 8 the columns 2t and 2t + 8, in the order (g, 2t),
/// (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8); of b's column g the rows 2t and 2t + 8; of the sums' rows g and g + 8 the
/// columns 2t, 2t + 1.
template <class T> __device__ inline void mma(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Four matrices of 8 × 8 elements of 16 bits from shared memory, as mma wants them: all lanes of the warp call. Lane l
/// gives the address of row l % 8 of matrix l / 8, a multiple of 16 bytes. Of each matrix it gets two elements in a
/// register: (l / 4, 2 (l % 4)) and its right neighbour; transposed, (2 (l % 4), l / 4) and the one below.
template <bool transposed> __device__ inline void load_matrices(uint32_t (&to)[4], const uint16_t* row) {
  auto at = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/// Two numbers rounded to neighbours in a register, as mma wants them.
template <class T> __device__ inline uint32_t narrow_two(float low, float high) {
  uint32_t both;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/// CUDA's own is no constant for the compiler, which divides by it.
inline constexpr int warpSize = 32;

template <class T, int N> struct Pack;
/// Reads and writes N neighbours in one instruction, or 16 bytes of them in each. The address is a multiple of what one
/// moves.
template <int N, class T> __device__ inline Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N> __device__ inline void store_pack(T* to, const Pack<T, N>& value) {
  *reinterpret_cast<Pack<T, N>*>(to) = value;
}

/// Begins a copy of 16 bytes to shared memory, both at multiples of 16. This thread sees it after a wait for its group,
/// the others behind a barrier after that.
__device__ inline void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
/// The copies since the last call are a group.
__device__ inline void group_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for all groups but the last `still_open`.
template <int still_open> __device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(still_open) : "memory");
}

/// The block's dynamic shared memory.
template <class T> __device__ inline T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

/// Refuses an index outside [0, extent), other than the one that `unless` names: ends the launch with a fault, before
/// which one thread of the warps that meet it prints a line.
__device__ inline void check_index(const char* what, int64_t position, int64_t value, int64_t extent,
                                   const char* unless = nullptr, int64_t exception = 0) {
  if (uint64_t(value) < uint64_t(extent) || (unless && value == exception)) [[likely]]
    return;
  using Number = long long;
  unsigned met = __activemask(), thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  if (int(thread % unsigned(warpSize)) == __ffs(int(met)) - 1) {
    if (unless)
      printf("%s %lld is %lld, outside [0, %lld) and not %s (%lld)\n", what, Number(position), Number(value),
             Number(extent), unless, Number(exception));
    else
      printf("%s %lld is %lld, outside [0, %lld)\n", what, Number(position), Number(value), Number(extent));
  }
  __syncwarp(met);  // the line is there before anybody ends the launch
  __trap();
}

/// Device memory for the length of an operation, from the stream's allocator.
class Scratch {
 public:
  Scratch(const Launch&, size_t bytes) : memory_(launching_device(), std::max<size_t>(bytes, 1)) {}
  template <class T> T* as() const { return memory_.as<T>(); }

 private:
  Workspace memory_;
};

/// Memory that a kernel reads and that is not an operand's; the simulator wants to know.
inline void note_input(const void*, size_t) {}
/// The running operation leaves the rest of this output as it was, by design.
inline void writes_a_part_of(const OutView&) {}

/// What stands in the kernel table for an operation.
template <auto Operation, class... Args> typename Slot<Args...>::Kernel entry_of(const Slot<Args...>&) {
  return Operation;
}

}  // namespace shardgrad::gpu
