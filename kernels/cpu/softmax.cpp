// softmax and log-softmax of rows, and their backward.

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kExpCost = 4;  // an exponential costs about as much as this many cheap elements

void softmax(const Launch& launch, OutView y, View x, bool log) {
  if (x.numel() == 0) return;
  int64_t cols = x.shape[-1];
  size_t row = size_t(cols) * size_of(x.dtype);
  auto loop = loops().rows.softmax[int(x.dtype)];
  parallel_for(launch.threads, x.numel() / cols, grain_for(kExpCost * cols), [&](int64_t begin, int64_t end) {
    loop(y.as<char>() + begin * row, x.as<char>() + begin * row, end - begin, cols, log, y.beta != 0);
  });
}

void softmax_backward(const Launch& launch, OutView dx, View dy, View y, bool log) {
  if (y.numel() == 0) return;
  int64_t cols = y.shape[-1];
  size_t row = size_t(cols) * size_of(y.dtype);
  auto loop = loops().rows.softmax_backward[int(y.dtype)];
  parallel_for(launch.threads, y.numel() / cols, grain_for(cols), [&](int64_t begin, int64_t end) {
    loop(dx.as<char>() + begin * row, dy.as<char>() + begin * row, y.as<char>() + begin * row, end - begin, cols, log,
         dx.beta != 0);
  });
}

const Each registered_softmax(kernels::softmax, kFloats, softmax);
const Each registered_softmax_backward(kernels::softmax_backward, kFloats, softmax_backward);

}  // namespace
}  // namespace shardgrad::cpu
