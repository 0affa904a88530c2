#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {

Tensor full(const Shape& shape, double value, TensorOptions options) {
  Tensor y = empty(shape, options);
  launch(kernels::fill, y, out(y), value);
  return y;
}

Tensor zeros(const Shape& shape, TensorOptions options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }

// Made on the host a part at a time, so that the host needs no memory for all of it.
Tensor arange(int64_t count, TensorOptions options) {
  SG_CHECK(count >= 0, "arange: count ", count, " is negative");
  constexpr int64_t kPart = 1 << 20;
  Tensor y = empty({count}, options);
  if (y.device() == kMeta) return y;
  dispatch(options.dtype, [&]<class T>() {
    for (int64_t begin = 0; begin < count; begin += kPart) {
      std::vector<T> values(size_t(std::min(kPart, count - begin)));
      for (size_t i = 0; i < values.size(); ++i) {
        if constexpr (sizeof(T) == 2)
          values[i] = T(float(begin + int64_t(i)));
        else
          values[i] = T(begin + int64_t(i));
      }
      Tensor part = from_vector(values, {int64_t(values.size())}, {options.dtype, kCpu});
      copy_into(y.alias_rows(begin, begin + part.numel()), part);
    }
  });
  return y;
}

void fill_(const Tensor& x, double value) {
  check_changeable("fill_", x);
  launch(kernels::fill, x, out(x), value);
  x.bump_version();  // a change that is refused counts no write
}

}  // namespace shardgrad
