#pragma once
// Random numbers for tests that need the same ones more than once: randn of the library gives others at each call.

#include <string_view>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::test {

/// Standard normal numbers (uniform ones in [0, 1)), a function of the context's seed, `name` and the element's index.
inline Tensor normal(const Shape& shape, std::string_view name, TensorOptions options = {}) {
  Tensor y = empty(shape, options);
  launch(kernels::random_normal, y, out(y), kernels::RandomArgs{context().seed(), stream_of(name)});
  return y;
}
inline Tensor uniform(const Shape& shape, std::string_view name, TensorOptions options = {}) {
  Tensor y = empty(shape, options);
  launch(kernels::random_uniform, y, out(y), kernels::RandomArgs{context().seed(), stream_of(name)});
  return y;
}

}  // namespace shardgrad::test
