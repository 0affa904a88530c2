// swiglu and its backward, and rope.

#include <algorithm>

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

void check_starts(View starts, int64_t end) {
  if (!starts.defined()) return;
  const int64_t* start = starts.as<int64_t>();
  for (int64_t b = 0; b < starts.numel(); ++b)
    SG_CHECK(start[b] >= 0 && start[b] <= end, "rope: the start of sample ", b, " is ", start[b], ", outside [0, ",
             end + 1, ")");
}

void rope(const Launch& launch, OutView y, View x, View table, View starts, kernels::RopeArgs args) {
  if (x.numel() == 0) return;
  int64_t time = x.shape[1], cols = x.shape[2], width = table.shape[1];
  check_starts(starts, args.first_position + time);
  size_t row = size_t(cols) * size_of(x.dtype), angles = size_t(width) * size_of(table.dtype);
  auto loop = loops().transformer.rope[int(x.dtype)];
  parallel_for(launch.threads, x.shape[0] * time, grain_for(2 * cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t start = starts.defined() ? starts.as<int64_t>()[r / time] : 0;
      int64_t position = std::max<int64_t>(0, args.first_position + r % time - start);
      loop(y.as<char>() + size_t(r) * row, x.as<char>() + size_t(r) * row, table.as<char>() + size_t(position) * angles,
           args.heads, width / 2, cols - args.heads * width, args.inverse, y.beta != 0);
    }
  });
}

const Each registered_swiglu(kernels::swiglu, kFloats, swiglu);
const Each registered_swiglu_backward(kernels::swiglu_backward, kFloats, swiglu_backward);
const Each registered_rope(kernels::rope, kFloats, rope);

}  // namespace
}  // namespace shardgrad::cpu
