#pragma once
// Operands at addresses that a test chooses.

#include <tests/kernels/kernel_case.h>

namespace shardgrad::test {

/// A tensor whose first element lies at a pack, or one element behind it.
struct Placed {
  Placed(const Buffer& x, bool at_a_pack) : all({x.numel() + 32}, x.dtype()), shape(x.shape()) {
    int64_t before = 16 / int64_t(size_of(x.dtype()));  // a Buffer begins one element behind a multiple of 16 bytes
    from = at_a_pack ? before - 1 : before;
    for (int64_t i = 0; i < x.numel(); ++i) all.set(from + i, x.get(i));
  }
  View in() const {
    View view = all.in();
    return {static_cast<const char*>(view.data) + from * int64_t(size_of(view.dtype)), shape, view.dtype, true};
  }
  OutView out(float beta = 0) {
    View view = in();
    return {const_cast<void*>(view.data), shape, view.dtype, beta, true};
  }
  std::vector<double> values() const {
    std::vector<double> found;
    for (int64_t i = 0; i < shape.numel(); ++i) found.push_back(all.get(from + i));
    return found;
  }
  Buffer all;
  Shape shape;
  int64_t from;
};

}  // namespace shardgrad::test
