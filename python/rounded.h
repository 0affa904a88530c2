#pragma once
// What Python makes of several operations is rounded once, as what is one operation in C++ is.

#include <shardgrad/autograd/ops/autocast.h>

namespace shardgrad::python {

/// of(x), of 16 bits computed in f32; under autocast it stays f32, as what autocast widens does.
template <class Of> Tensor rounded_once(const Tensor& x, const Of& of) {
  if (!is_narrow(x)) return of(x);
  Tensor y = of(cast(x, DType::f32));
  return autocast_dtype() ? y : cast(y, x.dtype());
}

}  // namespace shardgrad::python
