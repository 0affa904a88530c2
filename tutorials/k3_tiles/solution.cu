// A matrix product, twice: a thread for each element of c, alone, and with the others of its block.

#include <shardgrad/tutorials/k3_tiles/kernels.h>
#include <shardgrad/tutorials/score.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kSide = 16;  // a block has 16 × 16 threads, for as many elements of c

__global__ void naive_kernel(Out<float>* c, Score* score, const In<float>* a, const In<float>* b, int n) {
  Scored thread(score);
  int row = int(blockIdx.y * kSide + threadIdx.y), col = int(blockIdx.x * kSide + threadIdx.x);
  Number sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
  c[row * n + col] = sum;
}

__global__ void tiled_kernel(Out<float>* c, Score* score, const In<float>* a, const In<float>* b, int n) {
  Scored thread(score);
  __shared__ Shared<float> left[kSide][kSide], right[kSide][kSide];
  const int y = int(threadIdx.y), x = int(threadIdx.x);
  const int row = int(blockIdx.y) * kSide + y, col = int(blockIdx.x) * kSide + x;
  Number sum = 0;
  for (int depth = 0; depth < n; depth += kSide) {
    // TODO(you): bring one element of each tile: of a the columns, of b the rows from `depth` on. Then wait for the
    // others.
    left[y][x] = a[row * n + depth + x];
    right[y][x] = b[(depth + y) * n + col];
    __syncthreads();
    // TODO(you): add the products of this thread's row of `left` and its column of `right`. Then wait, for the next
    // tiles take the place of these.
    for (int k = 0; k < kSide; ++k) sum += left[y][k] * right[k][x];
    __syncthreads();
    // end of TODO
  }
  c[row * n + col] = sum;
}

template <auto Kernel> void run(const Launch& how, OutView c, OutView score, View a, View b) {
  const unsigned n = unsigned(a.shape[0]), blocks = n / kSide;
  launch<Kernel>(how, {dim3(blocks, blocks), dim3(kSide, kSide)}, c.as<Out<float>>(), score.as<Score>(),
                 a.as<In<float>>(), b.as<In<float>>(), int(n));
}

const Registered registered[] = {add_kernel<run<naive_kernel>>(naive, kF32),
                                 add_kernel<run<tiled_kernel>>(tiled, kF32)};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
