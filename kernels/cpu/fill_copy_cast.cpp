// fill, copy, cast, expand.

#include <cstring>

#include <shardgrad/kernels/cpu/broadcast.h>
#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

void fill(const Launch& launch, OutView y, double value) {
  dispatch(y.dtype, [&]<class T>() {
    T element = convert<T>(value), *out = y.as<T>();
    bool accumulate = y.beta != 0;
    parallel_elements(launch.threads, y.numel(), [=](int64_t begin, int64_t end) {
      if (!accumulate)
        std::fill(out + begin, out + end, element);
      else
        for (int64_t i = begin; i < end; ++i) put(out[i], element, true);
    });
  });
}

// y[0, n) = x[0, n) in y's dtype, or added to it.
void cast_range(void* y, DType to, const void* x, DType from, int64_t n, bool accumulate) {
  if (is_floating(to) && is_floating(from)) return loops().elementwise.cast[int(to)][int(from)](y, x, n, accumulate);
  dispatch(to, [&]<class To>() {
    dispatch(from, [&]<class From>() {
      To* out = static_cast<To*>(y);
      const From* in = static_cast<const From*>(x);
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_integral_v<To>)
          put(out[i], convert<To>(in[i]), accumulate);
        else
          put_sum(out[i], convert<Compute<To>>(in[i]), accumulate);
      }
    });
  });
}

void cast(const Launch& launch, OutView y, View x) {
  parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
    cast_range(y.as<char>() + begin * size_of(y.dtype), y.dtype, x.as<char>() + begin * size_of(x.dtype), x.dtype,
               end - begin, y.beta != 0);
  });
}

void copy(const Launch& launch, OutView y, View x) {
  if (y.beta != 0) return cast(launch, y, x);
  size_t size = size_of(x.dtype);
  parallel_elements(launch.threads, y.numel(), [&](int64_t begin, int64_t end) {
    std::memmove(y.as<char>() + begin * size, x.as<char>() + begin * size, size_t(end - begin) * size);
  });
}

template <class T> void expand_grid(T* y, const T* x, const Grid& grid) {
  for (int64_t r = 0; r < grid.rows; ++r, y += grid.cols, x += grid.row[0]) {
    if (grid.accumulate)
      for (int64_t c = 0; c < grid.cols; ++c) put(y[c], x[grid.fixed[0] ? 0 : c], true);
    else if (grid.fixed[0])
      std::fill(y, y + grid.cols, *x);
    else
      std::memcpy(y, x, size_t(grid.cols) * sizeof(T));
  }
}

void expand(const Launch& launch, OutView y, View x) {
  if (y.numel() == x.numel()) return copy(launch, y, x);
  if (y.numel() == 0) return;
  Broadcast<1> shape(y.shape, {&x.shape});
  dispatch(x.dtype, [&]<class T>() {
    for_grids(launch.threads, shape, y.beta != 0, [&](const Grid& grid, int64_t at, std::array<int64_t, 1> from) {
      expand_grid(y.as<T>() + at, x.as<T>() + from[0], grid);
    });
  });
}

const Each registered[] = {
    {kernels::fill, kAll, fill},
    {kernels::copy, kAll, copy},
    {kernels::cast, kAll, cast},
    {kernels::expand, kAll, expand},
};

}  // namespace
}  // namespace shardgrad::cpu
