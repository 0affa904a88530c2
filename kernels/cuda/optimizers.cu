// sgd and adam over flat ranges, in one pass. One thread per element: its bits do not depend on where a range is cut.
//
// sgd   reads p, g (and the momentum), writes p (and the momentum): 12 (20) bytes per element in f32, 4 (7) operations.
// adam  reads p, g and two moments, writes all but g: 28 bytes per element in f32, about 15 operations.
//
// A copy in another dtype costs its own bytes more: 2 per element in bf16.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::AdamArgs;
using kernels::SgdArgs;

/// What is the same for every element, rounded once on the host: many GPUs are slow in f64.
template <class T> struct SgdFactors {
  T lr, momentum, fresh, weight_decay, grad_scale;
  bool nesterov, first_step;
  explicit SgdFactors(const SgdArgs& s)
      : lr(T(s.lr)),
        momentum(T(s.momentum)),
        fresh(T(1 - s.dampening)),
        weight_decay(T(s.weight_decay)),
        grad_scale(T(s.grad_scale)),
        nesterov(s.nesterov),
        first_step(s.first_step) {}
};

template <class T, class C>
__global__ void sgd_kernel(T* p, T* momentum, C* copy, const T* g, int64_t n, SgdFactors<T> s) {
  int64_t i = thread_number();
  if (i >= n) return;
  T param = p[i], step = g[i] * s.grad_scale + s.weight_decay * param;
  if (momentum) {
    T buffer = s.first_step ? step : s.momentum * momentum[i] + s.fresh * step;
    momentum[i] = buffer;
    step = s.nesterov ? step + s.momentum * buffer : buffer;
  }
  p[i] = param -= s.lr * step;
  if (copy) copy[i] = convert<C>(param);
}

// Visits the types of the parameter and of its copy, which may be undefined.
template <class Visitor> void dispatch_types(OutView p, OutView copy, Visitor&& visit) {
  SG_ASSERT(!copy.defined() || size_of(copy.dtype) < size_of(p.dtype), "a copy of ", p.dtype, " in ", copy.dtype);
  dispatch_floats(p.dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>)
      dispatch_floats(copy.defined() ? copy.dtype : DType::bf16, [&]<class C>() {
        if constexpr (sizeof(C) < sizeof(T)) visit.template operator()<T, C>();
      });
  });
}

void sgd(const Launch& how, OutView p, OutView momentum, OutView copy, View g, SgdArgs args) {
  dispatch_types(p, copy, [&]<class T, class C>() {
    launch<sgd_kernel<T, C>>(how, {blocks_for(p.numel()), kBlock}, p.as<T>(), momentum.as<T>(), copy.as<C>(), g.as<T>(),
                             p.numel(), SgdFactors<T>(args));
  });
}

template <class T> struct AdamFactors {
  T fresh1, beta2, fresh2, eps, weight_decay, keep, step_size, root_correction, grad_scale;
  bool decoupled;
  explicit AdamFactors(const AdamArgs& s)
      : fresh1(T(1 - s.beta1)),
        beta2(T(s.beta2)),
        fresh2(T(1 - s.beta2)),
        eps(T(s.eps)),
        weight_decay(T(s.weight_decay)),
        keep(T(1 - s.lr * s.weight_decay)),
        step_size(T(s.lr / s.bias_correction1)),
        root_correction(T(1 / std::sqrt(s.bias_correction2))),
        grad_scale(T(s.grad_scale)),
        decoupled(s.decoupled) {}
};

template <class T, class C>
__global__ void adam_kernel(T* p, T* exp_avg, T* exp_avg_sq, C* copy, const T* g, int64_t n, AdamFactors<T> s) {
  int64_t i = thread_number();
  if (i >= n) return;
  T param = p[i], grad = g[i] * s.grad_scale;
  if (s.decoupled)
    param *= s.keep;
  else
    grad += s.weight_decay * param;
  T mean = exp_avg[i] + s.fresh1 * (grad - exp_avg[i]);
  T square = s.beta2 * exp_avg_sq[i] + s.fresh2 * grad * grad;
  exp_avg[i] = mean;
  exp_avg_sq[i] = square;
  T denominator = std::sqrt(square) * s.root_correction + s.eps;
  p[i] = param -= s.step_size * mean / denominator;
  if (copy) copy[i] = convert<C>(param);
}

void adam(const Launch& how, OutView p, OutView exp_avg, OutView exp_avg_sq, OutView copy, View g, AdamArgs args) {
  dispatch_types(p, copy, [&]<class T, class C>() {
    launch<adam_kernel<T, C>>(how, {blocks_for(p.numel()), kBlock}, p.as<T>(), exp_avg.as<T>(), exp_avg_sq.as<T>(),
                              copy.as<C>(), g.as<T>(), p.numel(), AdamFactors<T>(args));
  });
}

const Registered registered[] = {
    add_kernel<sgd>(kernels::sgd, kWideFloats),
    add_kernel<adam>(kernels::adam, kWideFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
