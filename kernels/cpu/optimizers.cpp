// sgd and adam over flat ranges, in one pass: a block at a time, whose copy is made while it is in the cache.

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kBlock = 4096;

template <class V> auto at(const V& view, int64_t i) {
  return view.defined() ? view.template as<char>() + i * size_of(view.dtype) : nullptr;
}

// `update(i, n)` updates elements [i, i + n).
template <class Update> void in_blocks(const Launch& launch, OutView p, OutView copy, const Update& update) {
  SG_ASSERT(!copy.defined() || size_of(copy.dtype) < size_of(p.dtype), "a copy of ", p.dtype, " in ", copy.dtype);
  auto cast = copy.defined() ? loops().elementwise.cast[int(copy.dtype)][int(p.dtype)] : nullptr;
  parallel_elements(launch.threads, p.numel(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin, n; i < end; i += n) {
      n = cast ? std::min(kBlock, end - i) : end - i;
      update(i, n);
      if (cast) cast(at(copy, i), at(p, i), n, false);
    }
  });
}

void sgd(const Launch& launch, OutView p, OutView momentum, OutView copy, View g, View scale, kernels::SgdArgs args) {
  if (scale.defined()) args.grad_scale *= *scale.as<double>();
  auto loop = loops().optimizers.sgd[int(p.dtype)];
  in_blocks(launch, p, copy, [&](int64_t i, int64_t n) { loop(at(p, i), at(momentum, i), at(g, i), n, args); });
}

void adam(const Launch& launch, OutView p, OutView exp_avg, OutView exp_avg_sq, OutView copy, View g, View scale,
          kernels::AdamArgs args) {
  if (scale.defined()) args.grad_scale *= *scale.as<double>();
  auto loop = loops().optimizers.adam[int(p.dtype)];
  in_blocks(launch, p, copy,
            [&](int64_t i, int64_t n) { loop(at(p, i), at(exp_avg, i), at(exp_avg_sq, i), at(g, i), n, args); });
}

const Each registered_sgd(kernels::sgd, kWideFloats, sgd);
const Each registered_adam(kernels::adam, kWideFloats, adam);

}  // namespace
}  // namespace shardgrad::cpu
