#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <shardgrad/kernels/cuda/launch.h>

#include "tests/sim/simulated.h"

namespace cg = cooperative_groups;

namespace shardgrad::test {
namespace {

using namespace shardgrad::SG_DEVICE;

__global__ void all_static_memory_kernel(float* y) {
  __shared__ float tile[12 * 1024];
  tile[threadIdx.x] = float(threadIdx.x);
  __syncthreads();
  y[threadIdx.x] = tile[31 - threadIdx.x];
}

__global__ void all_memory_of_a_block_kernel(float* y) {
  __shared__ float tile[12 * 1024];
  float* more = dynamic_shared<float>();
  more[179 * 256 - 1 - threadIdx.x] = float(threadIdx.x);
  __syncthreads();
  tile[threadIdx.x] = more[179 * 256 - 32 + threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[31 - threadIdx.x];
}

// books.cu has a kernel of this name, whose shared memory is not this one's.
__global__ void stencil(float* y, const float* x, int n) {
  __shared__ float tile[12 * 1024];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[n - 1 - int(threadIdx.x)];
}

__global__ void __launch_bounds__(64) as_many_threads_as_said_kernel(float* y) { y[threadIdx.x] = float(threadIdx.x); }

__global__ void part_of_a_local_kernel(float* y, const float* x, int taps) {
  float window[8], sum = 0;
  for (int i = 0; i < taps; ++i) window[i] = x[i];
  for (int i = 0; i < taps; ++i) sum += window[i];
  y[threadIdx.x] = sum;
}

__device__ void fill(float* to, float value, int n) {
  for (int i = 0; i < n; ++i) to[i] = value;
}
__global__ void a_local_that_a_function_sets_kernel(float* y) {
  float values[6];
  fill(values, 2, 6);
  y[threadIdx.x] = values[threadIdx.x % 6];
}

// &row[8] is a place to stop, which nobody reads.
__global__ void end_of_an_array_kernel(float* y) {
  float row[8] = {1, 1, 1, 1, 1, 1, 1, 1}, sum = 0;
  for (const float *at = &row[0], *end = &row[8]; at != end; ++at) sum += *at;
  y[threadIdx.x] = sum;
}

// -1.7e38 and 254, 254, 254, 254 are numbers like others where they are computed.
__global__ void bytes_of_254_kernel(float* y) {
  unsigned char bytes[4] = {0, 0, 0, 0};
  for (unsigned i = 0; i < 4; ++i) bytes[i] = static_cast<unsigned char>(254 + (threadIdx.x + i) % 2);
  y[threadIdx.x] = float(bytes[0] + bytes[1] + bytes[2] + bytes[3]);
}

__global__ void shuffles_of_halves_kernel(float* y) {
  float value = float(threadIdx.x);
  if (threadIdx.x < 16)
    value += __shfl_xor_sync(0xffffu, value, 1);
  else
    value -= __shfl_xor_sync(0xffff0000u, value, 1);
  y[threadIdx.x] = value;
}

__global__ void synchronised_in_both_branches_kernel(float* y, const float* x) {
  __shared__ float tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x % 2)
    __syncwarp();
  else
    __syncwarp();
  y[threadIdx.x] = tile[31 - threadIdx.x];
}

__global__ void lanes_that_have_returned_kernel(float* y) {
  if (threadIdx.x >= 20) return;
  float value = 1;
  value += __shfl_sync(kWholeWarp, value, int(threadIdx.x) / 2);
  y[threadIdx.x] = value;
}

__global__ void one_shuffle_for_two_branches_kernel(float* y) {
  float value = threadIdx.x < 16 ? 1.0f : 2.0f;
  for (int d = threadIdx.x < 16 ? 8 : 4; d > 0; d /= 2) value += 1;
  y[threadIdx.x] = __shfl_xor_sync(kWholeWarp, value, 16);
}

__global__ void pairs_of_lanes_kernel(float* y, const float* x) {
  __shared__ float tile[32];
  int lane = int(threadIdx.x);
  tile[lane] = x[lane];
  __syncwarp(3u << (lane & ~1));
  y[lane] = tile[lane ^ 1];
}

// One barrier for each round is enough for two buffers.
__global__ void two_buffers_kernel(float* y, const float* x) {
  __shared__ float tile[2][64];
  int t = int(threadIdx.x);
  float sum = 0;
  for (int round = 0; round < 6; ++round) {
    tile[round % 2][t] = x[64 * round + t];
    __syncthreads();
    sum += tile[round % 2][63 - t];
  }
  y[t] = sum;
}

__global__ void one_warp_brings_kernel(float* y, const float* x) {
  __shared__ float tile[128];
  if (threadIdx.x < 32)
    for (unsigned i = threadIdx.x; i < 128; i += 32) tile[i] = x[i];
  __syncthreads();
  y[threadIdx.x] = tile[127 - threadIdx.x];
}

__global__ void written_as_one_read_as_four_kernel(float* y, const float* x) {
  __shared__ __align__(16) float tile[128];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x >= 32) return;
  float4 v = reinterpret_cast<const float4*>(tile)[threadIdx.x];
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

__global__ void blocks_count_together_kernel(float* y) { atomicAdd(&y[4 + threadIdx.x % 4], 1.0f); }

// Numbers like others, with the bits of a local variable that is not set.
template <class T> __global__ void copied_kernel(T* y, const T* x) { y[threadIdx.x] = x[threadIdx.x]; }

// The lanes that pass ask for their places at once.
__global__ void compaction_kernel(float* y, const float* x) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (int(x[threadIdx.x]) % 3 == 0) {
    unsigned mask = __activemask(), lane = threadIdx.x % 32;
    int leader = __ffs(int(mask)) - 1, place = 0;
    if (int(lane) == leader) place = atomicAdd(&count, __popc(mask));
    place = __shfl_sync(mask, place, leader) + __popc(mask & ((1u << lane) - 1));
    y[place] = x[threadIdx.x];
  }
}

__global__ void groups_in_a_branch_kernel(float* y, const float* x) {
  y[threadIdx.x] = 0;
  if (threadIdx.x % 4 == 1) {
    auto group = cg::coalesced_threads();
    y[threadIdx.x] = cg::reduce(group, x[threadIdx.x], cg::plus<float>());
  }
}

// Threads of a row that ends early still come to each barrier.
__global__ void rows_of_unequal_length_kernel(float* y, const float* x, int columns) {
  __shared__ float tile[64];
  float sum = 0;
  for (int begin = 0; begin < columns; begin += 64) {
    int column = begin + int(threadIdx.x);
    tile[threadIdx.x] = column < columns ? x[column] : 0;
    __syncthreads();
    sum += tile[(threadIdx.x + 1) % 64];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}

__global__ void read_before_it_is_reused_kernel(float* y, const float* x) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float other = tile[63 - threadIdx.x];
  __syncthreads();
  tile[threadIdx.x] = 2 * other;
  y[threadIdx.x] = tile[threadIdx.x];
}

// Lane 3 writes a byte, then another one of that word, where the first is lane 4's now.
__global__ void bytes_change_hands_kernel(float* y) {
  __shared__ uint8_t bytes[4];
  int lane = int(threadIdx.x);
  if (lane == 3) bytes[0] = 1;
  __syncwarp();
  if (lane == 3) bytes[1] = 2;
  if (lane == 4) bytes[0] = 3;
  __syncwarp();
  y[lane] = float(10 * bytes[lane % 2] + bytes[(lane + 1) % 2]);
}

__global__ void all_raise_one_flag_kernel(float* y, const float* x) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  if (x[threadIdx.x] > 2) found = 1;
  __syncthreads();
  y[threadIdx.x] = float(found);
}

const Launch how;

const Tricky kernels[] = {
    {"all_static_memory", 26,
     [](float* y, const float*) {
       launch<all_static_memory_kernel>(how, {1, 32}, y);
     }},
    {"all_memory_of_a_block", 5,
     [](float* y, const float*) {
       launch<all_memory_of_a_block_kernel>(how, {1, 32, 179 * 1024}, y);
     }},
    {"namesake_in_another_file", 27,
     [](float* y, const float* x) {
       launch<stencil>(how, {1, 32}, y, x, 32);
     }},
    {"as_many_threads_as_said", 5,
     [](float* y, const float*) {
       launch<as_many_threads_as_said_kernel>(how, {1, 64}, y);
     }},
    {"part_of_a_local", 6,
     [](float* y, const float* x) {
       launch<part_of_a_local_kernel>(how, {1, 32}, y, x, 3);
     }},
    {"a_local_that_a_function_sets", 2,
     [](float* y, const float*) {
       launch<a_local_that_a_function_sets_kernel>(how, {1, 32}, y);
     }},
    {"end_of_an_array", 8,
     [](float* y, const float*) {
       launch<end_of_an_array_kernel>(how, {1, 32}, y);
     }},
    {"bytes_of_254", 1018,
     [](float* y, const float*) {
       launch<bytes_of_254_kernel>(how, {1, 32}, y);
     }},
    {"shuffles_of_halves", 9,
     [](float* y, const float*) {
       launch<shuffles_of_halves_kernel>(how, {1, 32}, y);
     }},
    {"synchronised_in_both_branches", 27,
     [](float* y, const float* x) {
       launch<synchronised_in_both_branches_kernel>(how, {1, 32}, y, x);
     }},
    {"lanes_that_have_returned", 2,
     [](float* y, const float*) {
       launch<lanes_that_have_returned_kernel>(how, {1, 32}, y);
     }},
    {"one_shuffle_for_two_branches", 5,
     [](float* y, const float*) {
       launch<one_shuffle_for_two_branches_kernel>(how, {1, 32}, y);
     }},
    {"pairs_of_lanes", 5,
     [](float* y, const float* x) {
       launch<pairs_of_lanes_kernel>(how, {1, 32}, y, x);
     }},
    {"two_buffers", 6 * 59 + 64 * 15,
     [](float* y, const float* x) {
       launch<two_buffers_kernel>(how, {1, 64}, y, x);
     }},
    {"one_warp_brings", 123,
     [](float* y, const float* x) {
       launch<one_warp_brings_kernel>(how, {1, 128}, y, x);
     }},
    {"written_as_one_read_as_four", 21 + 22 + 23 + 24,
     [](float* y, const float* x) {
       launch<written_as_one_read_as_four_kernel>(how, {1, 128}, y, x);
     }},
    {"blocks_count_together", 20 * 16,
     [](float* y, const float*) {
       launch<blocks_count_together_kernel>(how, {20, 64}, y);
     }},
    {"compaction", 18,
     [](float* y, const float* x) {
       launch<compaction_kernel>(how, {1, 64}, y, x);
     }},
    {"groups_in_a_branch", 8 * 16,
     [](float* y, const float* x) {
       launch<groups_in_a_branch_kernel>(how, {1, 32}, y, x);
     }},
    {"rows_of_unequal_length", 7 + 71,
     [](float* y, const float* x) {
       launch<rows_of_unequal_length_kernel>(how, {1, 64}, y, x, 100);
     }},
    {"read_before_it_is_reused", 2 * 59,
     [](float* y, const float* x) {
       launch<read_before_it_is_reused_kernel>(how, {1, 64}, y, x);
     }},
    {"bytes_change_hands", 23,
     [](float* y, const float*) {
       launch<bytes_change_hands_kernel>(how, {1, 32}, y);
     }},
    {"all_raise_one_flag", 1,
     [](float* y, const float* x) {
       launch<all_raise_one_flag_kernel>(how, {1, 64}, y, x);
     }},
};

}  // namespace

std::span<const Tricky> tricky_kernels() { return kernels; }
void run_copied(int* y, const int* x) { launch<copied_kernel<int>>(how, {1, 32}, y, x); }
void run_copied(float* y, const float* x, bool by_clang) {
  constexpr const char* name = "[Kernel = copied_kernel]";
  static sim::KernelRecord ours{name, nullptr, {}, 0xfefefefefefefefeu}, of_clang{name, nullptr, {}, ~uint64_t(0)};
  sim::run_kernel(by_clang ? of_clang : ours, {1, 32}, [=] { copied_kernel(y, x); });
}

}  // namespace shardgrad::test
