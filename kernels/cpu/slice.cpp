// narrow, narrow_backward and paste: ranges of one dimension.

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

// For each outer index: y[y_begin, y_begin + n) = x[x_begin, x_begin + n), in elements.
struct Slices {
  int64_t outer, n, y_begin, y_step, x_begin, x_step;
};

void move_slices(const Launch& launch, OutView y, View x, const Slices& s) {
  dispatch(x.dtype, [&]<class T>() {
    T* to = y.as<T>() + s.y_begin;
    const T* from = x.as<T>() + s.x_begin;
    auto move = [&](int64_t o, int64_t begin, int64_t end) {
      put_range(to + o * s.y_step + begin, from + o * s.x_step + begin, end - begin, y.beta != 0);
    };
    if (s.n < kSerialElements)
      return parallel_for(launch.threads, s.outer, grain_for(s.n), [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) move(o, 0, s.n);
      });
    for (int64_t o = 0; o < s.outer; ++o)  // few long ones, as along dim 0
      parallel_elements(launch.threads, s.n, [&](int64_t begin, int64_t end) { move(o, begin, end); });
  });
}

void narrow(const Launch& launch, OutView y, View x, int dim, int64_t start) {
  Around whole(x.shape, dim), part(y.shape, dim);
  int64_t n = part.extent * part.inner;
  move_slices(launch, y, x, {part.outer, n, 0, n, start * whole.inner, whole.extent * whole.inner});
}

void paste(const Launch& launch, OutView y, View x, int dim, int64_t start) {
  Around whole(y.shape, dim), part(x.shape, dim);
  int64_t n = part.extent * part.inner;
  move_slices(launch, y, x, {part.outer, n, start * whole.inner, whole.extent * whole.inner, 0, n});
}

void narrow_backward(const Launch& launch, OutView dx, View dy, int dim, int64_t start) {
  if (dx.beta == 0 && dx.numel() > 0) std::memset(dx.data, 0, dx.bytes());
  paste(launch, dx, dy, dim, start);
}

const Each registered_narrow(kernels::narrow, kAll, narrow);
const Each registered_paste(kernels::paste, kAll, paste);
const Each registered_narrow_backward(kernels::narrow_backward, kAll, narrow_backward);

}  // namespace
}  // namespace shardgrad::cpu
