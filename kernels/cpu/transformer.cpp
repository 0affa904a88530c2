// swiglu and its backward.

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

void swiglu(const Launch& launch, OutView y, View x) {
  if (y.numel() == 0) return;
  int64_t cols = y.shape[-1];
  size_t row = size_t(cols) * size_of(x.dtype);
  auto loop = loops().transformer.swiglu[int(x.dtype)];
  parallel_for(launch.threads, y.numel() / cols, grain_for(8 * cols), [&](int64_t begin, int64_t end) {
    loop(y.as<char>() + size_t(begin) * row, x.as<char>() + size_t(begin) * 2 * row, end - begin, cols, y.beta != 0);
  });
}

void swiglu_backward(const Launch& launch, OutView dx, View dy, View x) {
  if (dy.numel() == 0) return;
  int64_t cols = dy.shape[-1];
  size_t row = size_t(cols) * size_of(x.dtype);
  auto loop = loops().transformer.swiglu_backward[int(x.dtype)];
  parallel_for(launch.threads, dy.numel() / cols, grain_for(12 * cols), [&](int64_t begin, int64_t end) {
    size_t first = size_t(begin) * row;
    loop(dx.as<char>() + 2 * first, dy.as<char>() + first, x.as<char>() + 2 * first, end - begin, cols, dx.beta != 0);
  });
}

const Each registered_swiglu(kernels::swiglu, kFloats, swiglu);
const Each registered_swiglu_backward(kernels::swiglu_backward, kFloats, swiglu_backward);

}  // namespace
}  // namespace shardgrad::cpu
