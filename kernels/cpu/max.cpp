// max_dim: the largest element along one dimension and where it is. NaN counts as largest; the first one wins.

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

// The position of the largest of n elements, `step` apart.
template <class T> int64_t position_of_max(const T* x, int64_t n, int64_t step) {
  using C = std::conditional_t<std::is_class_v<T>, float, T>;
  int64_t best = 0;
  C top = C(x[0]);
  for (int64_t i = 1; i < n && top == top; ++i) {
    C value = C(x[i * step]);
    if (value > top || value != value) {
      top = value;
      best = i;
    }
  }
  return best;
}

void max_dim(const Launch& launch, OutView values, OutView index, View x, int dim) {
  Around from(x.shape, dim);
  int64_t count = from.outer * from.inner;
  SG_ASSERT(from.extent > 0 || count == 0, "max_dim over an empty dimension of ", x.shape);
  dispatch(x.dtype, [&]<class T>() {
    parallel_for(launch.threads, count, grain_for(from.extent), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* first = x.as<T>() + i / from.inner * from.extent * from.inner + i % from.inner;
        int64_t best = position_of_max(first, from.extent, from.inner);
        if (values.defined()) put(values.as<T>()[i], first[best * from.inner], values.beta != 0);
        if (index.defined()) put(index.as<int64_t>()[i], best, index.beta != 0);
      }
    });
  });
}

const Each registered(kernels::max_dim, kAll, max_dim);

}  // namespace
}  // namespace shardgrad::cpu
