#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {

Tensor full(const Shape& shape, double value, TensorOptions options) {
  Tensor y = empty(shape, options);
  launch(kernels::fill, y, out(y), value);
  return y;
}

Tensor zeros(const Shape& shape, TensorOptions options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }

Tensor arange(int64_t count, TensorOptions options) {
  SG_CHECK(count >= 0, "arange: count ", count, " is negative");
  return dispatch(options.dtype, [&]<class T>() {
    std::vector<T> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (sizeof(T) == 2)
        values[i] = T(float(i));
      else
        values[i] = T(i);
    }
    return from_vector(values, {count}, options);
  });
}

Tensor randn(const Shape& shape, const std::string& name, TensorOptions options) {
  Tensor y = empty(shape, options);
  check_floating("randn", y);
  launch(kernels::random_normal, y, out(y), kernels::RandomArgs{context().seed(), stream_of(name)});
  return y;
}

Tensor rand(const Shape& shape, const std::string& name, TensorOptions options) {
  Tensor y = empty(shape, options);
  check_floating("rand", y);
  launch(kernels::random_uniform, y, out(y), kernels::RandomArgs{context().seed(), stream_of(name)});
  return y;
}

void fill_(const Tensor& x, double value) {
  SG_CHECK(
      x.is_leaf() || !context().grad_enabled(),
      "fill_: this tensor was computed, and a change in place is not recorded for backward; fill a detach()ed copy");
  x.bump_version();
  launch(kernels::fill, x, out(x), value);
}

}  // namespace shardgrad
