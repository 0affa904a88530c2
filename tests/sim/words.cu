#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_runtime.h>

#include <shardgrad/kernels/cuda/launch.h>

#include "tests/sim/words.h"

namespace cg = cooperative_groups;

namespace shardgrad::test {
namespace {

using namespace shardgrad::SG_DEVICE;

__global__ void __launch_bounds__(32) word_kernel(void (*use)(float*, const float*, int), float* y, const float* x) {
  use(y, x, int(threadIdx.x));
}

__constant__ float offsets[32];

const Word threads[] = {
    {"__ldg",
     [](float* y, const float* x, int t) { y[t] = __ldg(x + t) + __ldg(reinterpret_cast<const float4*>(x)).w; },
     [](int t) { return float(t + 5); }},
    {"__ldcg", [](float* y, const float* x, int t) { __stcg(y + t, __ldcg(&x[t])); },
     [](int t) { return float(t + 1); }},
    {"__ldcs", [](float* y, const float* x, int t) { __stcs(y + t, __ldcs(&x[t])); },
     [](int t) { return float(t + 1); }},
    {"__constant__", [](float* y, const float* x, int t) { y[t] = offsets[t] + x[t]; },
     [](int t) { return float(11 * t + 1); }},
    {"dynamic_shared",
     [](float* y, const float* x, int t) {
       float* tile = dynamic_shared<float>();
       tile[t] = x[t];
       __syncthreads();
       y[t] = tile[31 - t];
     },
     [](int t) { return float(32 - t); }},
    {"__syncthreads_count", [](float* y, const float*, int t) { y[t] = float(__syncthreads_count(t < 5)); },
     [](int) { return 5.0f; }},
    {"__syncthreads_and",
     [](float* y, const float*, int t) {
       y[t] = float(__syncthreads_and(t < 32) + 2 * __syncthreads_and(t < 31) + 4 * __syncthreads_or(t == 8) +
                    8 * __syncthreads_or(t > 31));
     },
     [](int) { return 5.0f; }},
    {"__threadfence",
     [](float* y, const float*, int t) {
       __threadfence();
       __threadfence_block();
       y[t] = 1;
     },
     [](int) { return 1.0f; }},
    {"atomicAdd", [](float* y, const float* x, int) { atomicAdd(y, x[0]); }, [](int t) { return t == 0 ? 32.0f : 0; }},
    {"atomicSub",
     [](float* y, const float*, int t) {
       __shared__ int left;
       if (t == 0) left = 40;
       __syncwarp();
       atomicSub(&left, 1);
       __syncwarp();
       y[t] = float(left);
     },
     [](int) { return 8.0f; }},
    {"atomicMin_and_atomicMax",
     [](float* y, const float*, int t) {
       __shared__ int least, most;
       if (t == 0) least = most = 7;
       __syncthreads();
       atomicMin(&least, t);
       atomicMax(&most, t);
       __syncthreads();
       y[t] = float(100 * most + least);
     },
     [](int) { return 3100.0f; }},
    {"atomicAnd",
     [](float* y, const float*, int t) {
       __shared__ unsigned bits;
       if (t == 0) bits = ~0u;
       __syncthreads();
       if (t % 4) atomicAnd(&bits, ~(1u << t));
       __syncthreads();
       y[t] = float(bits);
     },
     [](int) { return float(0x11111111u); }},
    {"atomicOr",
     [](float* y, const float*, int t) {
       __shared__ unsigned bits;
       if (t == 0) bits = 0;
       __syncthreads();
       if (t < 5) atomicOr(&bits, 1u << t);
       __syncthreads();
       y[t] = float(bits);
     },
     [](int) { return 31.0f; }},
    {"atomicXor",
     [](float* y, const float*, int t) {
       __shared__ unsigned bits;
       if (t == 0) bits = 1;
       __syncthreads();
       atomicXor(&bits, t < 5 ? 2u : 0u);
       __syncthreads();
       y[t] = float(bits);
     },
     [](int) { return 3.0f; }},
    {"atomicCAS",
     [](float* y, const float* x, int t) {  // the way to add what has no atomicAdd
       __shared__ int sum;
       if (t == 0) sum = __float_as_int(0);
       __syncthreads();
       for (int seen = 0, old;; seen = old) {
         old = atomicCAS(&sum, seen, __float_as_int(__int_as_float(seen) + x[t]));
         if (old == seen) break;
       }
       __syncthreads();
       y[t] = __int_as_float(sum);
     },
     [](int) { return 32.0f * 33 / 2; }},
    {"atomicExch",
     [](float* y, const float*, int t) {
       __shared__ int last;
       if (t == 0) last = -1;
       __syncthreads();
       y[t] = float(atomicExch(&last, t));
     },
     [](int t) { return float(t - 1); }},
    {"atomicInc",
     [](float* y, const float*, int t) {
       __shared__ unsigned count;
       if (t == 0) count = 0;
       __syncthreads();
       y[t] = float(atomicInc(&count, 7));
     },
     [](int t) { return float(t % 8); }},
    {"atomicDec",
     [](float* y, const float*, int t) {
       __shared__ unsigned left;
       if (t == 0) left = 5;
       __syncthreads();
       y[t] = float(atomicDec(&left, 5));
     },
     [](int t) { return float(5 - t % 6); }},
    {"atomicAdd_block",
     [](float* y, const float*, int t) {
       atomicAdd_block(y + t, 1.0f);
       atomicAdd_system(y + t, 2.0f);
     },
     [](int) { return 3.0f; }},
    {"__shfl_sync", [](float* y, const float* x, int t) { y[t] = __shfl_sync(0xffffffff, x[t], 4); },
     [](int) { return 5.0f; }},
    {"__shfl_up_sync", [](float* y, const float* x, int t) { y[t] = __shfl_up_sync(0xffffffff, x[t], 1); },
     [](int t) { return float(t ? t : 1); }},
    {"__shfl_down_sync", [](float* y, const float* x, int t) { y[t] = __shfl_down_sync(0xffffffff, x[t], 1, 16); },
     [](int t) { return float(t % 16 == 15 ? t + 1 : t + 2); }},
    {"__shfl_xor_sync",
     [](float* y, const float* x, int t) {
       float sum = x[t];
       for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
       y[t] = sum;
     },
     [](int) { return 528.0f; }},
    {"__ballot_sync", [](float* y, const float*, int t) { y[t] = float(__ballot_sync(0xffffffff, t < 4)); },
     [](int) { return 15.0f; }},
    {"__any_and_all_sync",
     [](float* y, const float*, int t) {
       y[t] = float(__any_sync(0xffffffff, t == 3) * 2 + __all_sync(0xffffffff, t < 31));
     },
     [](int) { return 2.0f; }},
    {"__activemask",
     [](float* y, const float*, int t) {
       y[t] = 0;
       if (t % 2) y[t] = float(__popc(__activemask()));
     },
     [](int t) { return t % 2 ? 16.0f : 0.0f; }},
    {"__reduce_add_sync",
     [](float* y, const float*, int t) {
       y[t] = float(__reduce_add_sync(0xffffffff, t) + 1000 * __reduce_max_sync(0xffffffff, t - 40));
     },
     [](int) { return 496.0f - 9000.0f; }},
    {"__reduce_min_sync",
     [](float* y, const float*, int t) {
       unsigned bits = 1u << t % 4 | 64u, parity = __reduce_xor_sync(0xffffffff, t < 3 ? 5u : 0u);
       y[t] = float(__reduce_min_sync(0xffffffff, t - 9)) + float(__reduce_min_sync(0xffffffff, ~0u >> t));
       y[t] += float(__reduce_and_sync(0xffffffff, bits) + __reduce_or_sync(0xffffffff, bits) + parity);
     },
     [](int) { return -9.0f + 1 + 64 + 79 + 5; }},
    {"__match_any_sync",
     [](float* y, const float*, int t) {
       int all = 1;
       unsigned same = __match_any_sync(0xffffffff, t % 8);
       __match_all_sync(0xffffffff, t / 31, &all);
       y[t] = float(__popc(same) + all);
     },
     [](int) { return 4.0f; }},
    {"cg::thread_block",
     [](float* y, const float* x, int t) {
       __shared__ float tile[32];
       cg::thread_block block = cg::this_thread_block();
       tile[block.thread_rank()] = x[t];
       block.sync();
       y[t] = tile[(block.thread_rank() + 1) % block.size()] + float(cg::this_grid().size());
     },
     [](int t) { return float(t == 31 ? 1 : t + 2) + 32; }},
    {"cg::tiled_partition",
     [](float* y, const float* x, int t) {
       auto warp = cg::tiled_partition<32>(cg::this_thread_block());
       auto tile = cg::tiled_partition<8>(warp);
       y[t] = tile.shfl(x[t], 0) + float(tile.meta_group_rank()) + float(tile.ballot(tile.thread_rank() == 2));
     },
     [](int t) { return float(t / 8 * 8 + 1 + t / 8 + 4); }},
    {"cg::coalesced_threads",
     [](float* y, const float*, int t) {
       y[t] = -1;
       if (t % 3 == 0) {
         cg::coalesced_group group = cg::coalesced_threads();
         y[t] = float(group.thread_rank() + 100 * group.size()) + group.shfl_down(0.0f, 1);
       }
     },
     [](int t) { return t % 3 ? -1.0f : float(t / 3 + 1100); }},
    {"cg::reduce",
     [](float* y, const float* x, int t) {
       auto tile = cg::tiled_partition<16>(cg::this_thread_block());
       y[t] = cg::reduce(tile, x[t], cg::plus<float>()) + cg::reduce(tile, x[t], cg::greater<float>());
     },
     [](int t) { return t < 16 ? 136.0f + 16 : 392.0f + 32; }},
    {"cg::reduce_bits_and_least",
     [](float* y, const float* x, int t) {
       auto warp = cg::tiled_partition<32>(cg::this_thread_block());
       unsigned bits = cg::reduce(warp, 1u << t % 4, cg::bit_or<unsigned>());
       y[t] = cg::reduce(warp, x[t], cg::less<float>()) + float(bits);
     },
     [](int) { return 16.0f; }},
    {"cg::tile_of_any_parent",
     [](float* y, const float* x, int t) {
       cg::thread_block_tile<8> tile = cg::tiled_partition<8>(cg::tiled_partition<32>(cg::this_thread_block()));
       y[t] = tile.shfl_up(x[t], 1) + 100 * float(tile.meta_group_rank()) + 1000 * float(tile.meta_group_size());
       y[t] += float(tile.match_any(t % 8 < 3) == (t % 8 < 3 ? 7u : 0xf8u));
     },
     [](int t) { return float(t % 8 ? t : t + 1) + 100 * float(t / 8) + 4000 + 1; }},
    {"cg::tiles_of_a_branch",
     [](float* y, const float* x, int t) {
       y[t] = 0;
       if (t % 2 == 0 || t == 31) return;
       cg::coalesced_group branch = cg::coalesced_threads(), tile = cg::tiled_partition(branch, 4);
       cg::thread_group same = cg::tiled_partition(cg::thread_group(branch), 4);
       y[t] = cg::reduce(tile, x[t], cg::plus<float>()) + 1000 * float(tile.meta_group_rank() + tile.meta_group_size());
       same.sync();
       if (same.size() != tile.size() || same.thread_rank() != tile.thread_rank()) y[t] = -1;
     },
     [](int t) {
       int first = t / 8 * 8 + 2, count = t < 24 ? 4 : 3;
       return t % 2 && t < 31 ? float(count * first + count * (count - 1) + 1000 * (t / 8 + 4)) : 0.0f;
     }},
    {"cg::labeled_partition",
     [](float* y, const float*, int t) {
       auto warp = cg::tiled_partition<32>(cg::this_thread_block());
       cg::coalesced_group group = cg::labeled_partition(warp, t % 3 ? 5 : 9);
       y[t] = float(group.size() + 100 * group.meta_group_rank() + 1000 * group.meta_group_size());
     },
     [](int t) { return t % 3 ? 2121.0f : 2011.0f; }},
    {"cg::exclusive_scan",
     [](float* y, const float* x, int t) {
       auto tile = cg::tiled_partition<16>(cg::this_thread_block());
       y[t] = cg::exclusive_scan(tile, x[t]) + cg::inclusive_scan(tile, 1.0f);
     },
     [](int t) { return float(t / 16 * 16 * (t % 16) + (t % 16) * (t % 16 + 1) / 2 + t % 16 + 1); }},
};

const Launch how;

}  // namespace

std::span<const Word> thread_words() { return threads; }
void run_word(const Word& word, float* y, const float* x) {
  float tens[32];
  for (int t = 0; t < 32; ++t) tens[t] = float(10 * t);
  cudaMemcpyToSymbol(offsets, tens, sizeof(tens));
  launch<word_kernel>(how, {1, 32, 32 * sizeof(float)}, word.use, y, x);
}

}  // namespace shardgrad::test
