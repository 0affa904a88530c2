#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>

#include <shardgrad/kernels/cuda/launch.h>

#include "tests/sim/simulated.h"

namespace cg = cooperative_groups;

namespace shardgrad::test {
namespace {

using namespace shardgrad::SG_DEVICE;

__global__ void cached_load_past_the_end_kernel(float* y, const float* x) {
  y[threadIdx.x] = __ldg(x + 4080 + threadIdx.x);  // fault
}

__global__ void streamed_vectors_overlap_kernel(float* y) {
  __stcs(reinterpret_cast<float4*>(y + 2 * threadIdx.x), make_float4(1, 2, 3, 4));  // fault
}

__global__ void half2_past_the_end_kernel(half2* y) {
  y[4090 + threadIdx.x] = __float2half2_rn(1);  // fault
}

__constant__ float weights[32] = {1, 2, 3};
__global__ void write_to_a_constant_kernel(float* y) {
  y[threadIdx.x] = weights[threadIdx.x];
  weights[threadIdx.x] = 0;  // fault
}

__global__ void group_waits_in_a_branch_kernel(float* y) {
  cg::thread_block block = cg::this_thread_block();
  if (block.thread_rank() < 48) block.sync();  // fault
  y[threadIdx.x] = 1;
}

__global__ void tile_in_a_branch_kernel(float* y) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  float value = 1;
  if (threadIdx.x < 20) value = tile.shfl_down(value, 1);  // fault
  __syncthreads();
  y[threadIdx.x] = value;
}

__global__ void sum_of_a_short_warp_kernel(float* y) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  y[threadIdx.x] = cg::reduce(tile, 1.0f, cg::plus<float>());  // fault
}

__global__ void sum_without_oneself_kernel(float* y) {
  y[threadIdx.x] = float(__reduce_add_sync(0xfffffff0u, 1));  // fault
}

__global__ void reductions_of_one_line_kernel(float* y) {
  unsigned t = threadIdx.x;
  y[t] = float(t < 16 ? __reduce_add_sync(kWholeWarp, t) : __reduce_max_sync(kWholeWarp, t));  // fault
}

__global__ void a_barrier_of_a_warp_kernel(float* y, const float* x) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = tile[63 - threadIdx.x];  // fault
}

__global__ void counted_and_read_at_once_kernel(float* y) {
  __shared__ int bins[4];
  if (threadIdx.x < 4) bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[threadIdx.x % 4], 1);
  y[threadIdx.x] = float(bins[0]);  // fault
}

__global__ void next_tile_comes_too_early_kernel(float* y, const float* x) {
  __shared__ float tile[64];
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    tile[threadIdx.x] = x[64 * round + int(threadIdx.x)];
    __syncthreads();
    sum += tile[63 - threadIdx.x];  // fault
  }
  y[threadIdx.x] = sum;
}

__global__ void sum_of_neighbours_in_place_kernel(float* y) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i + 1] += y[i];  // fault
}

template <class T> __global__ void doubled_kernel(T* y, const T* x, int n) {
  int i = int(thread_number());
  if (i < n) store(y + i, 2 * load(x + i), false);
}
void doubled(const Launch& how, OutView y, View x, int n) {
  dispatch(y.dtype, [&]<class T>() {
    launch<doubled_kernel<T>>(how, {blocks_for(n), kBlock}, y.as<T>(), x.as<T>(), n);
  });
}
void doubled_in_part(const Launch& how, OutView y, View x, int n) {
  writes_a_part_of(y);
  doubled(how, y, x, n);
}

const Launch how;

const Faulty kernels[] = {
    {"cached_load_past_the_end_kernel", "(16, 0, 0)", "reads 4 bytes at byte 16384 of input, which has 16384",
     [](float* y, const float* x) {
       launch<cached_load_past_the_end_kernel>(how, {1, 32}, y, x);
     }},
    {"streamed_vectors_overlap_kernel", "(1, 0, 0)", "writes 16 bytes at an address that is not a multiple of 16",
     [](float* y, const float*) {
       launch<streamed_vectors_overlap_kernel>(how, {1, 32}, y);
     }},
    {"half2_past_the_end_kernel", "(6, 0, 0)", "of output, which has 16384",
     [](float* y, const float*) {
       launch<half2_past_the_end_kernel>(how, {1, 32}, reinterpret_cast<half2*>(y));
     }},
    {"write_to_a_constant_kernel", "(0, 0, 0)", "writes 4 bytes of the program's own data, which it may only read",
     [](float* y, const float*) {
       launch<write_to_a_constant_kernel>(how, {1, 32}, y);
     }},
    {"group_waits_in_a_branch_kernel", "(0, 0, 0)", "thread (48, 0, 0) has returned",
     [](float* y, const float*) {
       launch<group_waits_in_a_branch_kernel>(how, {1, 64}, y);
     }},
    {"tile_in_a_branch_kernel", "(0, 0, 0)", "lanes that do not come: thread (31, 0, 0) waits at the barrier",
     [](float* y, const float*) {
       launch<tile_in_a_branch_kernel>(how, {1, 32}, y);
     }},
    {"sum_of_a_short_warp_kernel", "(8, 0, 0)",
     "reads lane 24 in a shuffle with mask 0xffffffff, but that lane does not",
     [](float* y, const float*) {
       launch<sum_of_a_short_warp_kernel>(how, {1, 24}, y);
     }},
    {"sum_without_oneself_kernel", "(0, 0, 0)", "mask 0xfffffff0, which leaves out its own lane 0",
     [](float* y, const float*) {
       launch<sum_without_oneself_kernel>(how, {1, 32}, y);
     }},
    {"reductions_of_one_line_kernel", "(0, 0, 0)", "lanes that do not come: thread (31, 0, 0) is in a warp operation",
     [](float* y, const float*) {
       launch<reductions_of_one_line_kernel>(how, {1, 32}, y);
     }},
    {"a_barrier_of_a_warp_kernel", "(31, 0, 0)", "reads the shared variable 'tile' that thread (32, 0, 0) wrote",
     [](float* y, const float* x) {
       launch<a_barrier_of_a_warp_kernel>(how, {1, 64}, y, x);
     }},
    {"counted_and_read_at_once_kernel", "(1, 0, 0)", "reads the shared variable 'bins' that thread (0, 0, 0) wrote",
     [](float* y, const float*) {
       launch<counted_and_read_at_once_kernel>(how, {1, 32}, y);
     }},
    {"next_tile_comes_too_early_kernel", "(32, 0, 0)", "reads the shared variable 'tile' that thread (31, 0, 0) wrote",
     [](float* y, const float* x) {
       launch<next_tile_comes_too_early_kernel>(how, {1, 64}, y, x);
     }},
    {"sum_of_neighbours_in_place_kernel", "(1, 0, 0)", "reads output that thread (0, 0, 0) wrote",
     [](float* y, const float*) {
       launch<sum_of_neighbours_in_place_kernel>(how, {1, 32}, y);
     }},
};

}  // namespace

std::span<const Faulty> faulty_words() { return kernels; }
void run_doubled(OutView y, View x, int n, bool in_part) {
  if (in_part)
    sim::with_operands<doubled_in_part, OutView, View, int>(how, y, x, n);
  else
    sim::with_operands<doubled, OutView, View, int>(how, y, x, n);
}

}  // namespace shardgrad::test
