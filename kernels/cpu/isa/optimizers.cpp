#include <shardgrad/kernels/cpu/isa/simd.h>
#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu {
namespace {

template <class T> void sgd(void* p_, void* momentum_, const void* g_, int64_t n, const kernels::SgdArgs& s) {
  using V = VectorOf<T>;
  T *p = static_cast<T*>(p_), *buffer = static_cast<T*>(momentum_);
  const T* g = static_cast<const T*>(g_);
  V lr = splat<V>(T(s.lr)), momentum = splat<V>(T(s.momentum)), fresh = splat<V>(T(1 - s.dampening));
  V weight_decay = splat<V>(T(s.weight_decay)), grad_scale = splat<V>(T(s.grad_scale));
  for_vectors<T>(n, [&](int64_t i, auto load, auto store) {
    V param = load(p + i), step = fma(weight_decay, param, load(g + i) * grad_scale);
    if (buffer) {
      V b = s.first_step ? step : fma(momentum, load(buffer + i), fresh * step);
      store(buffer + i, b);
      step = s.nesterov ? fma(momentum, b, step) : b;
    }
    store(p + i, param - lr * step);
  });
}

template <class T> void adam(void* p_, void* m_, void* v_, const void* g_, int64_t n, const kernels::AdamArgs& s) {
  using V = VectorOf<T>;
  T *p = static_cast<T*>(p_), *m = static_cast<T*>(m_), *v = static_cast<T*>(v_);
  const T* g = static_cast<const T*>(g_);
  V decay = splat<V>(T(s.decoupled ? 1 - s.lr * s.weight_decay : 1)),
    l2 = splat<V>(T(s.decoupled ? 0 : s.weight_decay));
  V fresh1 = splat<V>(T(1 - s.beta1)), beta2 = splat<V>(T(s.beta2)), fresh2 = splat<V>(T(1 - s.beta2));
  V step_size = splat<V>(T(s.lr / s.bias_correction1)), eps = splat<V>(T(s.eps));
  V root_correction = splat<V>(T(1 / __builtin_sqrt(s.bias_correction2))), grad_scale = splat<V>(T(s.grad_scale));
  for_vectors<T>(n, [&](int64_t i, auto load, auto store) {
    V param = load(p + i), grad = fma(l2, param, load(g + i) * grad_scale);
    V mean = load(m + i);
    mean = fma(fresh1, grad - mean, mean);
    V square = fma(beta2, load(v + i), fresh2 * grad * grad);
    store(m + i, mean);
    store(v + i, square);
    V denominator = fma(sqrt(square), root_correction, eps);
    store(p + i, param * decay - step_size * mean / denominator);
  });
}

}  // namespace

namespace SG_ISA {
constinit const OptimizerLoops optimizer_loops = {
    .sgd = {sgd<float>, sgd<double>},
    .adam = {adam<float>, adam<double>},
};
}  // namespace SG_ISA
}  // namespace shardgrad::cpu
