// The sum of a row: the threads of a block add up parts of it, and then what each of them has.

#include <shardgrad/tutorials/k2_row_sum/kernels.h>
#include <shardgrad/tutorials/score.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kThreads = 64;  // of a block, which has a row

__global__ void row_sum_kernel(Out<float>* y, Score* score, const In<float>* x, int columns) {
  Scored thread(score);
  __shared__ Shared<float> partial[kThreads];
  const int t = int(threadIdx.x);
  const In<float>* row = x + int(blockIdx.x) * columns;
  Number sum = 0;
  // TODO(you): this thread's part of the row: elements t, t + 64, t + 128, … Neighbours read neighbours, which a GPU
  // brings from memory together.
  if (t == 0)
    for (int column = 0; column < columns; ++column) sum += row[column];
  // end of TODO
  partial[t] = sum;
  __syncthreads();
  // TODO(you): 32 threads add the upper half of the partial sums to the lower, then 16 of them, …, then one. All 64
  // threads come to each barrier.
  // end of TODO
  if (t == 0) y[blockIdx.x] = partial[0];
}

void run(const Launch& how, OutView y, OutView score, View x, View) {
  launch<row_sum_kernel>(how, {unsigned(x.shape[0]), kThreads}, y.as<Out<float>>(), score.as<Score>(),
                         x.as<In<float>>(), int(x.shape[1]));
}

const Registered registered = add_kernel<run>(row_sum, kF32);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
