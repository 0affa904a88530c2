#pragma once
// What kernels see: raw contiguous row-major memory with a shape and a dtype. Never a Tensor, never a stride.
// autograd/launch.h makes them of tensors.

#include <array>
#include <cstdint>

#include <shardgrad/core/dtype.h>
#include <shardgrad/core/shape.h>

namespace shardgrad {

/// A read-only operand. An undefined (optional) operand has data == nullptr and defined() == false.
struct View {
  const void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  bool present = false;

  bool defined() const { return present; }
  int64_t numel() const { return shape.numel(); }
  template <class T> const T* as() const { return static_cast<const T*>(data); }
  size_t bytes() const { return size_t(numel()) * size_of(dtype); }
};

/// A destination. A kernel computes data = beta * data + result; with beta == 0 it must not read data.
/// beta is 0 or 1. An undefined destination (defined() == false) is not wanted: skip it.
struct OutView {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  float beta = 0;
  bool present = false;

  bool defined() const { return present; }
  int64_t numel() const { return shape.numel(); }
  template <class T> T* as() const { return static_cast<T*>(data); }
  size_t bytes() const { return size_t(numel()) * size_of(dtype); }
};

}  // namespace shardgrad
