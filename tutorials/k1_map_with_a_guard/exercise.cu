// A map: a thread for each element, and a guard for the threads that have none.

#include <shardgrad/tutorials/k1_map_with_a_guard/kernels.h>
#include <shardgrad/tutorials/score.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kThreads = 256;  // of a block

__global__ void polynomial_kernel(Out<float>* y, Score* score, const In<float>* x, int n) {
  Scored thread(score);
  int i = 0;
  // TODO(you): which element is this thread's? threadIdx.x is its number in its block, blockIdx.x the block's number,
  // blockDim.x how many threads a block has.
  // TODO(you): y = 2x³ + 3x² + 5x + 7, where there is such an element, with one read and three multiplications.
  y[i] = x[i];
  // end of TODO
}

void run(const Launch& how, OutView y, OutView score, View x, View) {
  unsigned blocks = unsigned(x.numel() + kThreads - 1) / kThreads;
  launch<polynomial_kernel>(how, {blocks, kThreads}, y.as<Out<float>>(), score.as<Score>(), x.as<In<float>>(),
                            int(x.numel()));
}

const Registered registered = add_kernel<run>(polynomial, kF32);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
