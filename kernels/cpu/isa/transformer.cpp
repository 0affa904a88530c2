// swiglu and rope.

#include <shardgrad/kernels/cpu/isa/math.h>
#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu {
namespace {

template <class T> void swiglu(void* y_, const void* x_, int64_t rows, int64_t cols, bool accumulate) {
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  for (int64_t r = 0; r < rows; ++r, y += cols, x += 2 * cols)
    for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
      VectorOf<T> v = silu(load(x + c)) * load(x + cols + c);
      store(y + c, accumulate ? load(y + c) + v : v);
    });
}

template <class T>
void swiglu_backward(void* dx_, const void* dy_, const void* x_, int64_t rows, int64_t cols, bool accumulate) {
  using V = VectorOf<T>;
  T* dx = static_cast<T*>(dx_);
  const T *dy = static_cast<const T*>(dy_), *x = static_cast<const T*>(x_);
  for (int64_t r = 0; r < rows; ++r, dx += 2 * cols, dy += cols, x += 2 * cols)
    for_vectors<T>(cols, [&](int64_t c, auto load, auto store) {
      V gate = load(x + c), d = load(dy + c);
      V dgate = d * load(x + cols + c) * silu_slope(gate), dup = d * silu(gate);
      store(dx + c, accumulate ? load(dx + c) + dgate : dgate);
      store(dx + cols + c, accumulate ? load(dx + cols + c) + dup : dup);
    });
}

template <class T>
void rope(void* y_, const void* x_, const void* angles, int64_t heads, int64_t half, int64_t rest, bool inverse,
          bool accumulate) {
  using V = VectorOf<T>;
  T* y = static_cast<T*>(y_);
  const T* x = static_cast<const T*>(x_);
  auto* cosines = static_cast<const ScalarOf<T>*>(angles);
  V sign = splat<V>(inverse ? ScalarOf<T>(-1) : ScalarOf<T>(1));
  for (int64_t h = 0; h < heads; ++h, y += 2 * half, x += 2 * half)
    for_vectors<T>(half, [&](int64_t c, auto load, auto store) {
      V a = load(x + c), b = load(x + half + c), cosine = load(cosines + c), sine = load(cosines + half + c) * sign;
      V first = a * cosine - b * sine, second = b * cosine + a * sine;
      store(y + c, accumulate ? load(y + c) + first : first);
      store(y + half + c, accumulate ? load(y + half + c) + second : second);
    });
  for_vectors<T>(rest, [&](int64_t c, auto load, auto store) {
    V v = load(x + c);
    store(y + c, accumulate ? load(y + c) + v : v);
  });
}

#define SG_FLOATS(loop) \
  { loop<float>, loop<double>, loop<Bf16>, loop<F16> }

}  // namespace

namespace SG_ISA {
constinit const TransformerLoops transformer_loops = {
    .swiglu = SG_FLOATS(swiglu),
    .swiglu_backward = SG_FLOATS(swiglu_backward),
    .rope = SG_FLOATS(rope),
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
