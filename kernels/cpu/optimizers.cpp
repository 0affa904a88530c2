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

// `update(range, args, i, n)` updates elements [i, i + n) of a range.
template <class Args, class Update>
void in_blocks(const Launch& launch, const kernels::UpdateRanges<Args>& ranges, const View& scale,
               const Update& update) {
  for (const kernels::UpdateRange<Args>& range : *ranges) {
    const OutView &p = range.p, &copy = range.copy;
    SG_ASSERT(!copy.defined() || size_of(copy.dtype) < size_of(p.dtype), "a copy of ", p.dtype, " in ", copy.dtype);
    Args args = range.args;
    if (range.numbers.defined()) args.take(range.numbers.template as<double>());
    if (scale.defined()) args.grad_scale *= *scale.as<double>();
    auto cast = copy.defined() ? loops().elementwise.cast[int(copy.dtype)][int(p.dtype)] : nullptr;
    parallel_elements(launch.threads, p.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin, n; i < end; i += n) {
        n = cast ? std::min(kBlock, end - i) : end - i;
        update(range, args, i, n);
        if (cast) cast(at(copy, i), at(p, i), n, false);
      }
    });
  }
}

void sgd(const Launch& launch, kernels::UpdateRanges<kernels::SgdArgs> ranges, View scale) {
  auto loop = loops().optimizers.sgd[int(ranges->front().p.dtype)];
  in_blocks(launch, ranges, scale, [&](const auto& range, const kernels::SgdArgs& args, int64_t i, int64_t n) {
    loop(at(range.p, i), at(range.state[0], i), at(range.g, i), n, args);
  });
}

void adam(const Launch& launch, kernels::UpdateRanges<kernels::AdamArgs> ranges, View scale) {
  auto loop = loops().optimizers.adam[int(ranges->front().p.dtype)];
  in_blocks(launch, ranges, scale, [&](const auto& range, const kernels::AdamArgs& args, int64_t i, int64_t n) {
    loop(at(range.p, i), at(range.state[0], i), at(range.state[1], i), at(range.g, i), n, args);
  });
}

const Each registered_sgd(kernels::sgd, kWideFloats, sgd);
const Each registered_adam(kernels::adam, kWideFloats, adam);

}  // namespace
}  // namespace shardgrad::cpu
