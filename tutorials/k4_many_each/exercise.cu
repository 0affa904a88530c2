// A matrix product in which each thread has 4 × 4 elements of c, and what it multiplies in registers.

#include <shardgrad/tutorials/k4_many_each/kernels.h>
#include <shardgrad/tutorials/score.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kSide = 16, kEach = 4, kTile = kSide * kEach;  // 16 × 16 threads have a tile of 64 × 64

__global__ void many_each_kernel(Out<float>* c, Score* score, const In<float>* a, const In<float>* b, int n) {
  Scored thread(score);
  __shared__ Shared<float> left[kSide][kTile], right[kSide][kTile];  // left: by columns of a
  const int y = int(threadIdx.y), x = int(threadIdx.x);
  const int row0 = int(blockIdx.y) * kTile, col0 = int(blockIdx.x) * kTile;
  Number sums[kEach][kEach] = {};  // of rows y, y + 16, y + 32, y + 48, and of columns x, x + 16, …
  for (int depth = 0; depth < n; depth += kSide) {
    for (int i = 0; i < kEach; ++i) {
      left[x][y + i * kSide] = a[(row0 + y + i * kSide) * n + depth + x];
      right[y][x + i * kSide] = b[(depth + y) * n + col0 + x + i * kSide];
    }
    __syncthreads();
    for (int k = 0; k < kSide; ++k) {
      Number rows[kEach], columns[kEach];
      // TODO(you): what this thread multiplies at k: 4 elements of each tile, each read once and kept in a register.
      for (int i = 0; i < kEach; ++i) rows[i] = columns[i] = 0;
      // TODO(you): and their 16 products.
      sums[0][0] += rows[0] * columns[0];
      // end of TODO
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) c[(row0 + y + i * kSide) * n + col0 + x + j * kSide] = sums[i][j];
}

void run(const Launch& how, OutView c, OutView score, View a, View b) {
  const unsigned n = unsigned(a.shape[0]), blocks = n / kTile;
  launch<many_each_kernel>(how, {dim3(blocks, blocks), dim3(kSide, kSide)}, c.as<Out<float>>(), score.as<Score>(),
                           a.as<In<float>>(), b.as<In<float>>(), int(n));
}

const Registered registered = add_kernel<run>(many_each, kF32);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
