#pragma once
// launch.h's words under a host compiler: CUDA's language as the simulator runs it. Only .cu files include this.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>  // says __attribute__((__noinline__)), which it must before CUDA's word is one
#include <span>
#include <tuple>

#include <shardgrad/kernels/sim/atomics.h>
#include <shardgrad/kernels/sim/halves.h>
#include <shardgrad/kernels/sim/launch.h>
#include <shardgrad/kernels/sim/numbers.h>
#include <shardgrad/kernels/sim/operands.h>
#include <shardgrad/kernels/sim/runtime.h>
#include <shardgrad/kernels/sim/vector_types.h>
#include <shardgrad/kernels/sim/warp.h>

#define SG_DEVICE sim
#define SG_UNROLL

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// As many bytes before a function as threads are allowed: what it says is in the program then, for KernelRecord.
#if defined(__x86_64__) && !defined(__clang__)
#define __launch_bounds__(threads, ...) __attribute__((patchable_function_entry((threads), (threads))))
#else
#define __launch_bounds__(...)
#endif
// Other data of the program a kernel may only read, too.
#define __constant__
// One block at a time runs in a thread of the host, so a block's shared memory is that thread's.
#define __shared__ static thread_local  // extern __shared__ T name[]; is T* name = dynamic_shared<T>(); here

// They change only while a thread is switched, so inside one thread's code they are constants.
extern __thread const uint3 threadIdx, blockIdx, blockDim, gridDim;
inline constexpr int warpSize = 32;

#define SG_HERE shardgrad::sim::SourceLine here = shardgrad::sim::SourceLine::current()

inline void __syncthreads(SG_HERE) { shardgrad::sim::barrier(0, here); }
inline int __syncthreads_count(int predicate, SG_HERE) { return shardgrad::sim::barrier(predicate != 0, here); }
inline int __syncthreads_or(int predicate, SG_HERE) { return shardgrad::sim::barrier(predicate != 0, here) > 0; }
inline int __syncthreads_and(int predicate, SG_HERE) { return shardgrad::sim::barrier(predicate == 0, here) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu, SG_HERE) { shardgrad::sim::sync_warp(mask, here); }
inline void __threadfence() { shardgrad::sim::fence(); }
inline void __threadfence_block() {}

template <class T> T __shfl_sync(unsigned mask, T value, int from, int width = warpSize, SG_HERE) {
  return shardgrad::sim::shuffle(mask, value, shardgrad::sim::Shuffle::index, from, width, here);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, SG_HERE) {
  return shardgrad::sim::shuffle(mask, value, shardgrad::sim::Shuffle::up, int(delta), width, here);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, SG_HERE) {
  return shardgrad::sim::shuffle(mask, value, shardgrad::sim::Shuffle::down, int(delta), width, here);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize, SG_HERE) {
  return shardgrad::sim::shuffle(mask, value, shardgrad::sim::Shuffle::exclusive_or, bits, width, here);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SG_HERE) {
  return shardgrad::sim::vote(mask, predicate != 0, here);
}
inline int __any_sync(unsigned mask, int predicate, SG_HERE) {
  return shardgrad::sim::vote(mask, predicate != 0, here) != 0;
}
inline int __all_sync(unsigned mask, int predicate, SG_HERE) {
  return shardgrad::sim::vote(mask, predicate == 0, here) == 0;
}
inline unsigned __activemask(SG_HERE) { return shardgrad::sim::active_lanes(here); }

#define SG_REDUCE(name, T, how)                                                                    \
  inline T name(unsigned mask, T value, SG_HERE) {                                                 \
    return T(shardgrad::sim::reduce(mask, unsigned(value), shardgrad::sim::Reduction::how, here)); \
  }
SG_REDUCE(__reduce_add_sync, unsigned, sum)
SG_REDUCE(__reduce_add_sync, int, sum)
SG_REDUCE(__reduce_min_sync, unsigned, least)
SG_REDUCE(__reduce_min_sync, int, least_signed)
SG_REDUCE(__reduce_max_sync, unsigned, most)
SG_REDUCE(__reduce_max_sync, int, most_signed)
SG_REDUCE(__reduce_and_sync, unsigned, bits_of_all)
SG_REDUCE(__reduce_or_sync, unsigned, bits_of_any)
SG_REDUCE(__reduce_xor_sync, unsigned, odd_bits)
#undef SG_REDUCE

template <class T> unsigned __match_any_sync(unsigned mask, T value, SG_HERE) {
  return shardgrad::sim::lanes_with(mask, shardgrad::sim::bits_of(value), here);
}
template <class T> unsigned __match_all_sync(unsigned mask, T value, int* all, SG_HERE) {
  unsigned same = shardgrad::sim::lanes_with(mask, shardgrad::sim::bits_of(value), here);
  *all = same == shardgrad::sim::vote(mask, true, here);
  return *all ? mask : 0;
}
#undef SG_HERE

namespace shardgrad::sim {

inline constexpr DeviceKind kThisDevice = DeviceKind::sim;

/// bf16 and f16 to f32 and back, rounding to nearest even.
template <class Half> float widen(Half value) { return float(value); }
template <class Half> Half narrow(float value) { return Half(value); }

/// What tensor cores do for a warp; gpu.h says who has what. The lanes of a group of four have parts of the same rows.
template <class T>
void mma(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SourceLine here = SourceLine::current()) {
  auto from = [&](uint32_t value, int lane) { return shuffle(0xffffffffu, value, Shuffle::index, lane, 32, here); };
  auto dot = [](uint32_t x, uint32_t y) {
    T low_x, low_y, high_x, high_y;
    low_x.bits = uint16_t(x), low_y.bits = uint16_t(y), high_x.bits = uint16_t(x >> 16),
    high_y.bits = uint16_t(y >> 16);
    return float(low_x) * float(low_y) + float(high_x) * float(high_y);
  };
  unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int lane = int(thread % 32), rows = lane / 4 * 4, columns = lane % 4 * 2 * 4;
  for (int t = 0; t < 4; ++t) {
    uint32_t x[4], y[4];
    for (int r = 0; r < 4; ++r) x[r] = from(a[r], rows + t);
    for (int r = 0; r < 4; ++r) y[r] = from(b[r % 2], columns + r / 2 * 4 + t);
    for (int e = 0; e < 4; ++e) sums[e] += dot(x[e / 2], y[e % 2 * 2]) + dot(x[e / 2 + 2], y[e % 2 * 2 + 1]);
  }
}

/// What ldmatrix does for a warp; gpu.h says who gets what. Each lane reads its elements where the row's address leads.
template <bool transposed>
__attribute__((no_sanitize("thread"), noinline)) void load_matrices(uint32_t (&to)[4], const uint16_t* row,
                                                                    SourceLine here = SourceLine::current()) {
  unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int lane = int(thread % 32), group = lane / 4, two = lane % 4 * 2;
  for (int m = 0; m < 4; ++m) {
    uint16_t elements[2];
    for (int e = 0; e < 2; ++e) {
      int from = m * 8 + (transposed ? two + e : group), column = transposed ? group : two + e;
      const uint16_t* at = shuffle(0xffffffffu, row, Shuffle::index, from, 32, here) + column;
      note_access(at, sizeof *at, false, __builtin_return_address(0));
      elements[e] = *at;
    }
    to[m] = uint32_t(elements[0]) | uint32_t(elements[1]) << 16;
  }
}

/// Two numbers rounded to neighbours in a register, as mma wants them.
template <class T> uint32_t narrow_two(float low, float high) {
  return uint32_t(narrow<T>(low).bits) | uint32_t(narrow<T>(high).bits) << 16;
}

/// There is no library for the simulator.
inline bool library_product(const Launch&, OutView, OutView, View, View, View, kernels::MatmulArgs) { return false; }
inline bool library_backward_input(const Launch&, OutView, View, View, View, View) { return false; }
inline bool library_backward_weight(const Launch&, OutView, OutView, View, View) { return false; }

/// Runs the kernel to its end. Throws Error(internal) with kernel, block, thread and line when it does what a GPU
/// would not forgive.
template <auto Kernel, class... Args> void launch(const Launch&, Config config, Args... args) {
  run_kernel(RecordOf<Kernel>::record, config, [=] { Kernel(args...); });
}

template <class T, int N> struct Pack;
/// An instruction moves at most 16 bytes.
inline void note_pack(const void* at, size_t bytes, bool writes, void* caller) {
  for (size_t from = 0; from < bytes; from += 16)
    note_access(static_cast<const char*>(at) + from, std::min<size_t>(bytes - from, 16), writes, caller);
}
/// Reads and writes N neighbours in one instruction, or in several. The address is a multiple of what one moves. Told
/// to the simulator here, since clang copies structures behind its hooks.
template <int N, class T> __attribute__((no_sanitize("thread"), noinline)) Pack<T, N> load_pack(const T* from) {
  note_pack(from, sizeof(Pack<T, N>), false, __builtin_return_address(0));
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N>
__attribute__((no_sanitize("thread"), noinline)) void store_pack(T* to, const Pack<T, N>& value) {
  note_pack(to, sizeof(Pack<T, N>), true, __builtin_return_address(0));
  *reinterpret_cast<Pack<T, N>*>(to) = value;
}

/// Copies of 16 bytes to shared memory, as gpu.h has them.
__attribute__((noinline)) inline void copy_async(void* to, const void* from) {
  copy_later(to, from, 16, __builtin_return_address(0));
}
inline void group_copies() { close_copies(); }
template <int still_open> void wait_for_copies() { await_copies(still_open); }

/// The block's dynamic shared memory.
template <class T> T* dynamic_shared() { return static_cast<T*>(dynamic_shared_memory()); }

/// Refuses an index outside [0, extent), other than the one that `unless` names, with Error(input).
inline void check_index(const char* what, int64_t position, int64_t value, int64_t extent, const char* unless = nullptr,
                        int64_t exception = 0) {
  if (uint64_t(value) < uint64_t(extent) || (unless && value == exception)) [[likely]]
    return;
  refuse_index(what, position, value, extent, unless, exception);
}

/// The operation with its operands made known to the simulator: all other memory is out of bounds, and an output is
/// written to its end.
template <auto Operation, class... Args> void with_operands(const Launch& how, Args... args) {
  Operands operands;
  (operands.note(args), ...);
  Operation(how, args...);
  operands.check_written(pretty_name<Operation>());
}
/// What stands in the kernel table for an operation.
template <auto Operation, class... Args> typename Slot<Args...>::Kernel entry_of(const Slot<Args...>&) {
  return with_operands<Operation, Args...>;
}

}  // namespace shardgrad::sim
