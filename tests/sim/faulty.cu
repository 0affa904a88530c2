#include <shardgrad/kernels/cuda/launch.h>

#include "tests/sim/simulated.h"

namespace shardgrad::test {
namespace {

using namespace shardgrad::SG_DEVICE;

__global__ void one_large_array_kernel(float* y) {
  __shared__ float tile[12 * 1024 + 32];
  tile[threadIdx.x] = 1;  // fault
  __syncthreads();
  y[threadIdx.x] = tile[31 - threadIdx.x];
}

__global__ void two_large_arrays_kernel(float* y) {
  __shared__ float left[8 * 1024], right[8 * 1024];
  left[threadIdx.x] = 1;  // fault
  __syncthreads();
  right[threadIdx.x] = left[31 - threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = right[31 - threadIdx.x];
}

__device__ float turned_round(float value);
__global__ void turned_round_twice_kernel(float* y) {
  __shared__ float own[10 * 1024];
  own[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = turned_round(own[31 - threadIdx.x]);
}
__device__ float turned_round(float value) {
  __shared__ float scratch[10 * 1024];
  scratch[threadIdx.x] = value;  // fault
  __syncthreads();
  return scratch[31 - threadIdx.x];
}

__global__ void large_beside_dynamic_kernel(float* y) {
  __shared__ float tile[10 * 1024];
  float* more = dynamic_shared<float>();
  more[threadIdx.x] = 1;
  __syncthreads();
  tile[threadIdx.x] = more[31 - threadIdx.x];  // fault
  __syncthreads();
  y[threadIdx.x] = tile[31 - threadIdx.x];
}

// Rows come in as they lie, and go out as columns. The third block forgets the barrier.
__global__ void transpose_kernel(float* y, const float* x) {
  __shared__ float tile[16][17];
  tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 16 + threadIdx.x];
  if (blockIdx.z < 2) __syncthreads();
  y[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];  // fault
}

__global__ void counter_is_never_zero_kernel(float* y) {
  __shared__ int count;
  if (y[threadIdx.x] == 0) atomicAdd(&count, 1);  // fault
  __syncthreads();
  if (threadIdx.x == 0) y[0] = float(count);
}

__global__ void counter_is_set_too_late_kernel(float* y) {
  __shared__ int count;
  if (threadIdx.x == 63)
    count = 0;
  else if (threadIdx.x >= 8)
    atomicAdd(&count, 1);  // fault
  __syncthreads();
  if (threadIdx.x == 0) y[0] = float(count);
}

// Thread 40 reads what nobody writes, and the others wait for it.
__global__ void a_reader_is_waited_for_kernel(float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x / 2] = 1;
  if (threadIdx.x == 40) y[0] = tile[50];  // fault
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x / 2];
}

__global__ void shuffles_in_both_branches_kernel(float* y) {
  float value = float(threadIdx.x);
  if (threadIdx.x < 16)
    value += __shfl_xor_sync(kWholeWarp, value, 1);  // fault
  else
    value -= __shfl_xor_sync(kWholeWarp, value, 1);
  y[threadIdx.x] = value;
}

__global__ void votes_in_both_branches_kernel(float* y) {
  unsigned votes = 0;
  if (threadIdx.x % 32 < 8 && blockIdx.x == 3) {
    votes = __ballot_sync(kWholeWarp, 1);  // fault
  } else {
    votes = __ballot_sync(kWholeWarp, 0);
  }
  y[threadIdx.x] = float(votes);
}

__global__ void a_local_is_not_set_kernel(float* y, const float* x, int taps) {
  float window[4], sum = 0;
  for (int i = 0; i < taps - int(blockIdx.x / 2); ++i) window[i] = x[threadIdx.x + unsigned(i)];
  for (int i = 0; i < 4; ++i) sum += window[i];
  y[blockIdx.x * 32 + threadIdx.x] = sum;  // fault
}

__global__ void a_mean_with_a_local_that_is_not_set_kernel(float* y, const float* x, int taps) {
  float window[4], sum = 0;
  for (int i = 1; i < taps; ++i) window[i] = x[threadIdx.x + unsigned(i)];
  for (int i = 0; i < 4; ++i) sum -= window[i];
  y[threadIdx.x] = sum / 4;  // fault
}

__global__ void a_local_overrun_kernel(float* y, const float* x, int taps) {
  float window[4] = {};
  for (int i = 0; i < taps + int(blockIdx.x); ++i) window[i] = x[threadIdx.x + unsigned(i)];  // fault
  y[threadIdx.x] = window[0] + window[3];
}

__global__ void a_local_underrun_kernel(float* y, const float* x) {
  float row[8];
  for (int i = 0; i < 8; ++i) row[i] = x[i];
  y[threadIdx.x] = row[int(threadIdx.x) - 1];  // fault
}

__global__ void a_halo_kernel(float* y, const float* x) {
  __shared__ float tile[64];
  int t = int(threadIdx.x);
  tile[t] = x[t];
  __syncthreads();
  y[t] = tile[t] + tile[t + 1];  // fault
}

__global__ void an_odd_row_of_vectors_kernel(float* y, const float* x, int columns) {
  const float4* row = reinterpret_cast<const float4*>(x + threadIdx.x * unsigned(columns));
  float4 v = row[0];  // fault
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

template <int most> __global__ void __launch_bounds__(most, 2) bounded_kernel(float* y) { y[threadIdx.x] = 1; }

const Launch how;

const Faulty kernels[] = {
    {"one_large_array_kernel", "(0, 0, 0)",
     "uses 49280 bytes of variables declared __shared__; a kernel has at most 48",
     [](float* y, const float*) {
       launch<one_large_array_kernel>(how, {1, 32}, y);
     }},
    {"two_large_arrays_kernel", "(0, 0, 0)",
     "uses 65536 bytes of variables declared __shared__; a kernel has at most 48",
     [](float* y, const float*) {
       launch<two_large_arrays_kernel>(how, {1, 32}, y);
     }},
    {"turned_round_twice_kernel", "(0, 0, 0)", "uses 81920 bytes of variables declared __shared__",
     [](float* y, const float*) {
       launch<turned_round_twice_kernel>(how, {1, 32}, y);
     }},
    {"large_beside_dynamic_kernel", "(0, 0, 0)", "uses 40960 bytes of variables declared __shared__ beside 194560 of",
     [](float* y, const float*) {
       launch<large_beside_dynamic_kernel>(how, {1, 32, 190 * 1024}, y);
     }},
    {"transpose_kernel", "(1, 0, 0)", "reads the shared variable 'tile' that thread (0, 1, 0) wrote at sim/faulty.cu:",
     [](float* y, const float* x) {
       launch<transpose_kernel>(how, {dim3(1, 1, 3), dim3(16, 16)}, y, x);
     },
     "(0, 0, 2)"},
    {"counter_is_never_zero_kernel", "(0, 0, 0)", "updates the shared variable 'count' where nobody in this block has",
     [](float* y, const float*) {
       launch<counter_is_never_zero_kernel>(how, {1, 64}, y);
     }},
    {"counter_is_set_too_late_kernel", "(8, 0, 0)", "updates the shared variable 'count' that thread (63, 0, 0) wrote",
     [](float* y, const float*) {
       launch<counter_is_set_too_late_kernel>(how, {1, 64}, y);
     }},
    {"a_reader_is_waited_for_kernel", "(40, 0, 0)", "reads the shared variable 'tile' where nobody in this block has",
     [](float* y, const float*) {
       launch<a_reader_is_waited_for_kernel>(how, {1, 64}, y);
     }},
    {"shuffles_in_both_branches_kernel", "(0, 0, 0)",
     "lanes that do not come: thread (31, 0, 0) is in a warp operation",
     [](float* y, const float*) {
       launch<shuffles_in_both_branches_kernel>(how, {1, 32}, y);
     }},
    {"a_local_is_not_set_kernel", "(0, 0, 0)",
     "writes to output at byte 256 what a local variable holds that nobody has set",
     [](float* y, const float* x) {
       launch<a_local_is_not_set_kernel>(how, {3, 32}, y, x, 4);
     },
     "(2, 0, 0)"},
    {"a_mean_with_a_local_that_is_not_set_kernel", "(0, 0, 0)", "what a local variable holds that nobody has set",
     [](float* y, const float* x) {
       launch<a_mean_with_a_local_that_is_not_set_kernel>(how, {1, 32}, y, x, 4);
     }},
    {"a_local_overrun_kernel", "(0, 0, 0)", "uses element 4 of an array 'float",
     [](float* y, const float* x) {
       launch<a_local_overrun_kernel>(how, {2, 32}, y, x, 4);
     },
     "(1, 0, 0)"},
    {"a_local_underrun_kernel", "(0, 0, 0)", "uses element -1 of an array 'float",
     [](float* y, const float* x) {
       launch<a_local_underrun_kernel>(how, {1, 32}, y, x);
     }},
    {"a_halo_kernel", "(63, 0, 0)", "uses element 64 of an array 'float",
     [](float* y, const float* x) {
       launch<a_halo_kernel>(how, {1, 64}, y, x);
     }},
    {"an_odd_row_of_vectors_kernel", "(1, 0, 0)",
     "uses an address that is not a multiple of 16 for 'const struct float4'",
     [](float* y, const float* x) {
       launch<an_odd_row_of_vectors_kernel>(how, {1, 32}, y, x, 30);
     }},
    {"votes_in_both_branches_kernel", "(0, 0, 0)", "lanes that do not come: thread (31, 0, 0) is in a warp operation",
     [](float* y, const float*) {
       launch<votes_in_both_branches_kernel>(how, {4, 64}, y);
     },
     "(3, 0, 0)"},
};

}  // namespace

std::span<const Faulty> faulty_kernels() { return kernels; }
void run_bounded(float* y, int bound, int threads) {
  if (bound == 96)
    launch<bounded_kernel<96>>(how, {1, unsigned(threads)}, y);
  else
    launch<bounded_kernel<256>>(how, {1, unsigned(threads)}, y);
}

}  // namespace shardgrad::test
