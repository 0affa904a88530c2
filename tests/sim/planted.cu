#include "tests/sim/planted.h"

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::test {
namespace {

using namespace shardgrad::SG_DEVICE;

template <bool with_barrier> __global__ void reverse_kernel(float* y, const float* x) {
  __shared__ float tile[256];
  int t = int(threadIdx.x);
  tile[t] = x[t];
  if (with_barrier) __syncthreads();
  y[t] = tile[255 - t];  // fault
}

template <bool checked> __global__ void scale_kernel(float* y, const float* x, int n) {
  int i = int(thread_number());
  if (checked && i >= n) return;
  float value = 0;
  if (i < n) value = x[i];
  y[i] = 2 * value;  // fault
}

template <bool atomic> __global__ void histogram_kernel(unsigned* counts, const int* x, int n) {
  __shared__ unsigned bins[8];
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) {
    if (atomic)
      atomicAdd(&bins[x[i]], 1u);
    else
      bins[x[i]] += 1;  // fault
  }
  __syncthreads();
  if (threadIdx.x < 8) counts[threadIdx.x] = bins[threadIdx.x];
}

__global__ void barrier_in_branch_kernel(float* y) {
  if (threadIdx.x < blockDim.x / 2) __syncthreads();  // fault
  __syncthreads();
  y[threadIdx.x] = 1;
}

__global__ void return_before_barrier_kernel(float* y, int n) {
  if (int(threadIdx.x) >= n) return;
  __syncthreads();  // fault
  y[threadIdx.x] = 1;
}

__global__ void unwritten_shared_kernel(float* y) {
  __shared__ float tile[64];
  if (threadIdx.x != 13) tile[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];  // fault
}

__global__ void shuffle_kernel(float* y, unsigned mask, bool half) {
  float value = float(threadIdx.x);
  if (!half || threadIdx.x < 16) value += __shfl_xor_sync(mask, value, 1);  // fault
  __syncthreads();
  y[threadIdx.x] = value;
}

__global__ void shuffle_down_kernel(float* y) {
  float value = 1;
  for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(kWholeWarp, value, unsigned(d));  // fault
  if (threadIdx.x == 0) y[0] = value;
}

__global__ void dynamic_shared_kernel(float* y) {
  float* tile = dynamic_shared<float>();
  tile[threadIdx.x] = float(threadIdx.x);  // fault
  __syncthreads();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

__global__ void vector_copy_kernel(float* y, const float* x, int n) {
  int i = 4 * int(thread_number());
  if (i >= n) return;
  Pack<float, 4> four = {};
  for (int k = 0; k < 4 && i + k < n; ++k) four.at[k] = x[i + k];
  store_pack(y + i, four);  // fault
}

__global__ void overrun_of_static_shared_kernel(float* y) {
  __shared__ float tile[64];
  float* at = tile;     // of arrays themselves the compiler checks the index
  at[threadIdx.x] = 1;  // fault
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}

template <bool synchronised> __global__ void warp_tree_kernel(float* y, const float* x) {
  __shared__ float tile[32];
  int t = int(threadIdx.x);
  tile[t] = x[t];
  for (int d = 16; d > 0; d /= 2) {
    if (synchronised) __syncwarp();
    if (t < d) tile[t] += tile[t + d];  // fault
  }
  if (t == 0) y[0] = tile[0];
}

__global__ void warp_rounds_kernel(float* y, const float* x) {
  __shared__ float tile[32];
  int t = int(threadIdx.x);
  tile[t] = x[t];
  __syncwarp();
  for (int d = 16; d > 0; d /= 2)
    if (t < d) tile[t] += tile[t + d];  // fault
  if (t == 0) y[0] = tile[0];
}

__global__ void same_flag_kernel(int* y, const float* x) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  if (x[threadIdx.x] > 0) found = 1;
  __syncthreads();
  if (threadIdx.x == 0) *y = found;
}

__global__ void different_flag_kernel(int* y) {
  __shared__ int last;
  last = int(threadIdx.x);  // fault
  __syncthreads();
  if (threadIdx.x == 0) *y = last;
}

// Every block writes a partial sum; the last one to finish adds them up.
template <bool fenced>
__global__ void last_block_sum_kernel(float* y, float* partial, unsigned* count, const float* x) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = x[blockIdx.x];
    if (fenced) __threadfence();
    last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x != 1) return;
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];  // fault
  *y = sum;
}

__global__ void global_race_kernel(float* y) {
  if (threadIdx.x == 0) y[0] = float(blockIdx.x);  // fault
}

__global__ void write_to_input_kernel(const float* x) {
  const_cast<float*>(x)[threadIdx.x] = 0;  // fault
}

// The same shared memory for one purpose after another, and reads by whoever comes.
__global__ void many_barriers_kernel(float* y) {
  __shared__ float tile[64];
  int t = int(threadIdx.x);
  float sum = 0;
  for (int round = 0; round < 64; ++round) {
    if (t == round) tile[0] = float(round);
    __syncthreads();
    sum += tile[0];
    __syncthreads();
  }
  y[t] = sum;
}

__global__ void votes_kernel(unsigned* y) {
  unsigned even = __ballot_sync(kWholeWarp, threadIdx.x % 2 == 0);
  int some = __any_sync(kWholeWarp, threadIdx.x == 7), all = __all_sync(kWholeWarp, threadIdx.x < 32);
  unsigned up = __shfl_up_sync(kWholeWarp, threadIdx.x, 3), eight = __shfl_sync(kWholeWarp, threadIdx.x, 1, 8);
  int count = __syncthreads_count(threadIdx.x < 5);
  unsigned* mine = y + 6 * threadIdx.x;
  mine[0] = even, mine[1] = unsigned(some), mine[2] = unsigned(all), mine[3] = up, mine[4] = eight;
  mine[5] = unsigned(count);
}

// a[r][k] = r + k and b[k][c] = k - c, in bf16.
__global__ void mma_kernel(float* y) {
  auto two = [](int first, int second) {
    return uint32_t(bf16(float(first)).bits) | uint32_t(bf16(float(second)).bits) << 16;
  };
  int lane = int(threadIdx.y * blockDim.x + threadIdx.x), g = lane / 4, t = lane % 4 * 2;
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    int sum = g + i % 2 * 8 + t + i / 2 * 8;
    a[i] = two(sum, sum + 1);
  }
  for (int i = 0; i < 2; ++i) b[i] = two(t + i * 8 - g, t + i * 8 + 1 - g);
  float sums[4] = {};
  mma<bf16>(sums, a, b);
  for (int i = 0; i < 4; ++i) y[(g + i / 2 * 8) * 8 + t + i % 2] = sums[i];
}

__global__ void never_kernel(float* y) { *y = 0; }

const Launch how;

template <CopyFault fault> __global__ void async_copy_kernel(float* y, const float* x) {
  __shared__ __align__(16) float tile[2][256];
  int t = int(threadIdx.x);
  for (int part = 0; part < 2; ++part) {
    copy_async(&tile[part][4 * t], x + 256 * part + 4 * t);
    if (fault != CopyFault::no_group) group_copies();
  }
  if (fault == CopyFault::no_wait)
    wait_for_copies<2>();
  else
    wait_for_copies<1>();
  if (fault != CopyFault::no_barrier) __syncthreads();
  y[t] = tile[fault == CopyFault::too_early ? 1 : 0][255 - t];  // fault
  if (fault != CopyFault::not_waited_for) wait_for_copies<0>();
}

__global__ void load_matrices_kernel(float* y, bool transposed) {
  __shared__ __align__(16) uint16_t rows[32][8];
  int lane = int(threadIdx.x);
  for (int c = 0; c < 8; ++c) rows[lane][c] = uint16_t(100 * lane + c);
  __syncwarp();
  uint32_t got[4];
  if (transposed)
    load_matrices<true>(got, rows[lane]);
  else
    load_matrices<false>(got, rows[lane]);
  for (int m = 0; m < 4; ++m)
    y[(lane * 4 + m) * 2] = float(got[m] & 0xffff), y[(lane * 4 + m) * 2 + 1] = float(got[m] >> 16);
}

}  // namespace

void run_reverse(float* y, const float* x, bool with_barrier) {
  if (with_barrier)
    launch<reverse_kernel<true>>(how, {1, 256}, y, x);
  else
    launch<reverse_kernel<false>>(how, {1, 256}, y, x);
}
void run_scale(float* y, const float* x, int n, bool checked) {
  if (checked)
    launch<scale_kernel<true>>(how, {blocks_for(n), kBlock}, y, x, n);
  else
    launch<scale_kernel<false>>(how, {blocks_for(n), kBlock}, y, x, n);
}
void run_histogram(unsigned* counts, const int* x, int n, bool atomic) {
  if (atomic)
    launch<histogram_kernel<true>>(how, {1, 128}, counts, x, n);
  else
    launch<histogram_kernel<false>>(how, {1, 128}, counts, x, n);
}
void run_barrier_in_branch(float* y, int threads) { launch<barrier_in_branch_kernel>(how, {1, unsigned(threads)}, y); }
void run_return_before_barrier(float* y, int n) { launch<return_before_barrier_kernel>(how, {1, 64}, y, n); }
void run_unwritten_shared(float* y) { launch<unwritten_shared_kernel>(how, {1, 64}, y); }
void run_shuffle(float* y, unsigned mask, bool half) { launch<shuffle_kernel>(how, {1, 32}, y, mask, half); }
void run_shuffle_down(float* y, int block) { launch<shuffle_down_kernel>(how, {1, unsigned(block)}, y); }
void run_dynamic_shared(float* y, int n, int bytes) {
  launch<dynamic_shared_kernel>(how, {1, unsigned(n), size_t(bytes)}, y);
}
void run_vector_copy(float* y, const float* x, int n) {
  launch<vector_copy_kernel>(how, {blocks_for((n + 3) / 4), kBlock}, y, x, n);
}
void run_overrun_of_static_shared(float* y, int n) {
  launch<overrun_of_static_shared_kernel>(how, {1, unsigned(n)}, y);
}
void run_warp_tree(float* y, const float* x, bool synchronised) {
  if (synchronised)
    launch<warp_tree_kernel<true>>(how, {1, 32}, y, x);
  else
    launch<warp_tree_kernel<false>>(how, {1, 32}, y, x);
}
void run_warp_rounds(float* y, const float* x) { launch<warp_rounds_kernel>(how, {1, 32}, y, x); }
void run_same_flag(int* y, const float* x) { launch<same_flag_kernel>(how, {1, 64}, y, x); }
void run_different_flag(int* y) { launch<different_flag_kernel>(how, {1, 64}, y); }
void run_last_block_sum(float* y, float* partial, unsigned* count, const float* x, int blocks, bool fenced) {
  if (fenced)
    launch<last_block_sum_kernel<true>>(how, {unsigned(blocks), 32}, y, partial, count, x);
  else
    launch<last_block_sum_kernel<false>>(how, {unsigned(blocks), 32}, y, partial, count, x);
}
void run_global_race(float* y, int blocks) { launch<global_race_kernel>(how, {unsigned(blocks), 32}, y); }
void run_write_to_input(const float* x) { launch<write_to_input_kernel>(how, {1, 4}, x); }
void run_many_barriers(float* y) { launch<many_barriers_kernel>(how, {1, 64}, y); }
void run_votes(unsigned* y) { launch<votes_kernel>(how, {1, 32}, y); }
void run_mma(float* y, int across, int down) {
  launch<mma_kernel>(how, {1, dim3(unsigned(across), unsigned(down))}, y);
}
void run_async_copy(float* y, const float* x, CopyFault fault) {
  auto with = [&]<CopyFault planted>() { launch<async_copy_kernel<planted>>(how, {1, 64}, y, x); };
  switch (fault) {
    case CopyFault::none:
      return with.operator()<CopyFault::none>();
    case CopyFault::no_wait:
      return with.operator()<CopyFault::no_wait>();
    case CopyFault::no_barrier:
      return with.operator()<CopyFault::no_barrier>();
    case CopyFault::no_group:
      return with.operator()<CopyFault::no_group>();
    case CopyFault::too_early:
      return with.operator()<CopyFault::too_early>();
    case CopyFault::not_waited_for:
      return with.operator()<CopyFault::not_waited_for>();
  }
}
void run_load_matrices(float* y, bool transposed) { launch<load_matrices_kernel>(how, {1, 32}, y, transposed); }
void run_never(float* y) { launch<never_kernel>(how, {1, 1}, y); }

}  // namespace shardgrad::test
