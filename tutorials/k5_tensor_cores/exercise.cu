// Tensor cores in two steps: one instruction of one warp, and then a whole product of such instructions. An element is
// bf16, and a register has two neighbours along k. Who has what: lane 4·g + t has, in rows[4], of a's rows g, g + 8, g,
// g + 8 the columns 2t, 2t, 2t + 8, 2t + 8 and the next one each; in columns[2] of b's column g the rows 2t, 2t + 8 and
// the next one each; in sums[4] of c's row g the columns 2t, 2t + 1, and then of row g + 8 the same.

#include <shardgrad/tutorials/k5_tensor_cores/kernels.h>
#include <shardgrad/tutorials/score.h>

namespace shardgrad::SG_DEVICE {
namespace {

__device__ uint32_t pair(uint16_t low, uint16_t high) { return low | uint32_t(high) << 16; }

// 1. a has 16 columns, b and c have 8.
__global__ void one_mma_kernel(Out<float>* c, Score* score, const In<uint16_t>* a, const In<uint16_t>* b) {
  Scored scored(score);
  const int lane = int(threadIdx.x), g = lane / 4, t = lane % 4;
  Number sums[4] = {};
  uint32_t rows[4] = {}, columns[2] = {};
  // TODO(you): this lane's pairs of a and b, by pair(first, next one).
  rows[0] = pair(a[g], a[g + 1]), columns[0] = pair(b[t], b[t + 1]);
  // end of TODO
  scored_mma(sums, rows, columns);
  // TODO(you): where do the four sums of this lane belong?
  c[lane] = sums[0];
  // end of TODO
}

// 2. The 8 warps of a block have 16 × 32 elements of c each, as four such products: 64 × 64 in all.
constexpr int kSide = 16, kTile = 64, kPairs = kSide / 2;
constexpr int kPitch = kPairs + 4;  // from row to row, so that the eight rows that mma reads lie in other banks
__global__ void tensor_kernel(Out<float>* c, Score* score, const In<uint16_t>* a, const In<uint16_t>* b, int n) {
  Scored scored(score);
  __shared__ Shared<uint32_t> left[kTile][kPitch], right[kTile][kPitch];  // rows of a, and columns of b, in pairs
  const int thread = int(threadIdx.x), warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int row0 = int(blockIdx.y) * kTile, col0 = int(blockIdx.x) * kTile, row = warp / 2 * 16 + g;
  const int first = warp % 2 * 32;  // column of this warp's part
  Number sums[4][4] = {};
  for (int depth = 0; depth < n; depth += kSide) {
    for (int e = thread; e < kTile * kPairs; e += kMostThreads) {
      const In<uint16_t>* across = a + (row0 + e / kPairs) * n + depth + e % kPairs * 2;
      left[e / kPairs][e % kPairs] = pair(across[0], across[1]);
      const In<uint16_t>* down = b + (depth + e / kTile * 2) * n + col0 + e % kTile;
      right[e % kTile][e / kTile] = pair(down[0], down[n]);
    }
    __syncthreads();
    // TODO(you): this lane's pairs of rows `row` and `row + 8`, which serve all four products, and of column g of the
    // eight that begin with first + 8j for each of them.
    sums[0][0] += Number(float(row + first));
    // end of TODO
    __syncthreads();
  }
  SG_UNROLL
  for (int j = 0; j < 4; ++j)
    for (int e = 0; e < 4; ++e) c[(row0 + row + e / 2 * 8) * n + col0 + first + j * 8 + t * 2 + e % 2] = sums[j][e];
}

void run_one(const Launch& how, OutView c, OutView score, View a, View b) {
  launch<one_mma_kernel>(how, {1, 32}, c.as<Out<float>>(), score.as<Score>(), a.as<In<uint16_t>>(),
                         b.as<In<uint16_t>>());
}

void run_many(const Launch& how, OutView c, OutView score, View a, View b) {
  const unsigned n = unsigned(a.shape[0]), blocks = n / kTile;
  launch<tensor_kernel>(how, {dim3(blocks, blocks), kMostThreads}, c.as<Out<float>>(), score.as<Score>(),
                        a.as<In<uint16_t>>(), b.as<In<uint16_t>>(), int(n));
}

const Registered registered[] = {add_kernel<run_one>(one_mma, kBf16), add_kernel<run_many>(tensor_cores, kBf16)};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
