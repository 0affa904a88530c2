// sgd and adam over flat ranges, in one pass. A thread has 16 bytes of a range, and computes them alike whether they
// move together or one by one: bits do not depend on where a range is cut.
//
// sgd   reads p, g (and the momentum), writes p (and the momentum): 12 (20) bytes per element in f32, 4 (7) operations.
// adam  reads p, g and two moments, writes all but g: 28 bytes per element in f32, about 15 operations.
//
// A copy in another dtype costs its own bytes more: 2 per element in bf16.

#include <shardgrad/kernels/cuda/packs.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::AdamArgs;
using kernels::SgdArgs;

/// What is the same for every element, rounded once on the host: many GPUs are slow in f64.
template <class T> struct SgdFactors {
  T lr, momentum, fresh, weight_decay;
  bool nesterov, first_step;
  explicit SgdFactors(const SgdArgs& s)
      : lr(T(s.lr)),
        momentum(T(s.momentum)),
        fresh(T(1 - s.dampening)),
        weight_decay(T(s.weight_decay)),
        nesterov(s.nesterov),
        first_step(s.first_step) {}
};

/// What gradients are multiplied by: what the host knows, and what a kernel before this one has found.
struct GradScale {
  double known;
  const double* found;
  template <class T> __device__ T get() const { return T(found ? known * *found : known); }
};

/// What a thread has of a range: elements [at, at + N), of which `left` are there.
template <int N> struct Part {
  int64_t at, left;
  bool packed;
  template <class T> __device__ Pack<T, N> load(const T* from) const {
    return load_some<N>(from + at, left, packed).elements();
  }
  template <class T> __device__ void store(T* to, const Pack<T, N>& values) const {
    store_some<N>(to + at, left, packed, values);
  }
  template <class T, class C> __device__ void store_copy(C* to, const Pack<T, N>& values) const {
    Pack<C, N> rounded;
    SG_UNROLL
    for (int e = 0; e < N; ++e) rounded.at[e] = convert<C>(values.at[e]);
    store(to, rounded);
  }
};

template <class T, class C>
__global__ void sgd_kernel(T* p, T* momentum, C* copy, const T* g, int64_t n, bool packed, SgdFactors<T> s,
                           GradScale scale) {
  constexpr int N = kPackOf<T>;
  Part<N> part{thread_number() * N, n - thread_number() * N, packed};
  if (part.left <= 0) return;
  Pack<T, N> param = part.load(p), grad = part.load(g), buffer = {};
  if (momentum && !s.first_step) buffer = part.load(momentum);
  T grad_scale = scale.get<T>();
  SG_UNROLL
  for (int e = 0; e < N; ++e) {
    T step = grad.at[e] * grad_scale + s.weight_decay * param.at[e];
    if (momentum) {
      buffer.at[e] = s.first_step ? step : s.momentum * buffer.at[e] + s.fresh * step;
      step = s.nesterov ? step + s.momentum * buffer.at[e] : buffer.at[e];
    }
    param.at[e] -= s.lr * step;
  }
  if (momentum) part.store(momentum, buffer);
  part.store(p, param);
  if (copy) part.store_copy(copy, param);
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

/// Whether all of these begin where elements move together; true for what is not there.
template <class T, class C, class... Others> bool all_packed(const C* copy, const Others*... others) {
  return aligned<C, kPackOf<T>>(copy) && (aligned<T, kPackOf<T>>(others) && ...);
}
template <class T> Config config_of(int64_t n) { return {blocks_for((n + kPackOf<T> - 1) / kPackOf<T>), kBlock}; }

void sgd(const Launch& how, OutView p, OutView momentum, OutView copy, View g, View scale, SgdArgs args) {
  dispatch_types(p, copy, [&]<class T, class C>() {
    bool packed = all_packed<T>(copy.as<C>(), p.as<T>(), momentum.as<T>(), g.as<T>());
    launch<sgd_kernel<T, C>>(how, config_of<T>(p.numel()), p.as<T>(), momentum.as<T>(), copy.as<C>(), g.as<T>(),
                             p.numel(), packed, SgdFactors<T>(args), GradScale{args.grad_scale, scale.as<double>()});
  });
}

template <class T> struct AdamFactors {
  T fresh1, beta2, fresh2, eps, weight_decay, keep, step_size, root_correction;
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
        decoupled(s.decoupled) {}
};

template <class T, class C>
__global__ void adam_kernel(T* p, T* exp_avg, T* exp_avg_sq, C* copy, const T* g, int64_t n, bool packed,
                            AdamFactors<T> s, GradScale scale) {
  constexpr int N = kPackOf<T>;
  Part<N> part{thread_number() * N, n - thread_number() * N, packed};
  if (part.left <= 0) return;
  Pack<T, N> params = part.load(p), grads = part.load(g), means = part.load(exp_avg), squares = part.load(exp_avg_sq);
  T grad_scale = scale.get<T>();
  SG_UNROLL
  for (int e = 0; e < N; ++e) {
    T &param = params.at[e], &mean = means.at[e], &square = squares.at[e], grad = grads.at[e] * grad_scale;
    if (s.decoupled)
      param *= s.keep;
    else
      grad += s.weight_decay * param;
    mean = mean + s.fresh1 * (grad - mean);
    square = s.beta2 * square + s.fresh2 * grad * grad;
    T denominator = std::sqrt(square) * s.root_correction + s.eps;
    param -= s.step_size * mean / denominator;
  }
  part.store(exp_avg, means);
  part.store(exp_avg_sq, squares);
  part.store(p, params);
  if (copy) part.store_copy(copy, params);
}

void adam(const Launch& how, OutView p, OutView exp_avg, OutView exp_avg_sq, OutView copy, View g, View scale,
          AdamArgs args) {
  dispatch_types(p, copy, [&]<class T, class C>() {
    bool packed = all_packed<T>(copy.as<C>(), p.as<T>(), exp_avg.as<T>(), exp_avg_sq.as<T>(), g.as<T>());
    launch<adam_kernel<T, C>>(how, config_of<T>(p.numel()), p.as<T>(), exp_avg.as<T>(), exp_avg_sq.as<T>(),
                              copy.as<C>(), g.as<T>(), p.numel(), packed, AdamFactors<T>(args),
                              GradScale{args.grad_scale, scale.as<double>()});
  });
}

const Registered registered[] = {
    add_kernel<sgd>(kernels::sgd, kWideFloats),
    add_kernel<adam>(kernels::adam, kWideFloats),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
