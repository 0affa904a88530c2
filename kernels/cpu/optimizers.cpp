// sgd and adam over flat ranges, in one pass: a block at a time, whose copy is made while it is in the cache. Of
// parameters in bf16 a block is converted, updated in f32, and rounded by chance.

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

constexpr int64_t kBlock = 4096;
constexpr DType kUpdated[] = {DType::f32, DType::f64, DType::bf16};

template <class V> auto at(const V& view, int64_t i) {
  return view.defined() ? view.template as<char>() + i * size_of(view.dtype) : nullptr;
}

// What a loop updates: n elements, all of f32 or all of f64.
struct UpdateBlock {
  void *p, *state[2];
  const void* g;
  int64_t n;
};

DType computed(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

// Elements [begin, end) of bf16.
template <class Args, class Update>
void update_narrow(const kernels::UpdateRange<Args>& range, const Args& args, int64_t begin, int64_t end,
                   const Update& update) {
  alignas(64) float values[kBlock], grads[kBlock];
  auto widen = loops().elementwise.cast[int(DType::f32)][int(DType::bf16)];
  for (int64_t i = begin, n; i < end; i += n) {
    n = std::min(kBlock, end - i);
    widen(values, at(range.p, i), n, false);
    widen(grads, at(range.g, i), n, false);
    update(UpdateBlock{values, {at(range.state[0], i), at(range.state[1], i)}, grads, n}, args);
    RandomRange random{.seed = args.rounding.seed, .stream = 0, .begin = args.rounding.begin + i};
    loops().random.round_by_chance(at(range.p, i), values, n, random);
  }
}

// `update(block, args)` for blocks that make up the ranges.
template <class Args, class Update>
void in_blocks(const Launch& launch, const kernels::UpdateRanges<Args>& ranges, const View& scale,
               const Update& update) {
  for (const kernels::UpdateRange<Args>& range : *ranges) {
    const OutView &p = range.p, &copy = range.copy;
    SG_ASSERT(!copy.defined() || size_of(copy.dtype) < size_of(p.dtype), "a copy of ", p.dtype, " in ", copy.dtype);
    SG_ASSERT(range.g.dtype == p.dtype, "a gradient in ", range.g.dtype, " of ", p.dtype);
    Args args = range.args;
    if (range.numbers.defined()) args.take(range.numbers.template as<double>());
    if (scale.defined()) args.grad_scale *= *scale.as<double>();
    auto cast = copy.defined() ? loops().elementwise.cast[int(copy.dtype)][int(p.dtype)] : nullptr;
    parallel_elements(launch.threads, p.numel(), [&](int64_t begin, int64_t end) {
      if (p.dtype == DType::bf16) return update_narrow(range, args, begin, end, update);
      for (int64_t i = begin, n; i < end; i += n) {
        n = cast ? std::min(kBlock, end - i) : end - i;
        update(UpdateBlock{at(p, i), {at(range.state[0], i), at(range.state[1], i)}, at(range.g, i), n}, args);
        if (cast) cast(at(copy, i), at(p, i), n, false);
      }
    });
  }
}

void sgd(const Launch& launch, kernels::UpdateRanges<kernels::SgdArgs> ranges, View scale) {
  auto loop = loops().optimizers.sgd[int(computed(ranges->front().p.dtype))];
  in_blocks(launch, ranges, scale, [&](const UpdateBlock& block, const kernels::SgdArgs& args) {
    loop(block.p, block.state[0], block.g, block.n, args);
  });
}

void adam(const Launch& launch, kernels::UpdateRanges<kernels::AdamArgs> ranges, View scale) {
  auto loop = loops().optimizers.adam[int(computed(ranges->front().p.dtype))];
  in_blocks(launch, ranges, scale, [&](const UpdateBlock& block, const kernels::AdamArgs& args) {
    loop(block.p, block.state[0], block.state[1], block.g, block.n, args);
  });
}

const Each registered_sgd(kernels::sgd, kUpdated, sgd);
const Each registered_adam(kernels::adam, kUpdated, adam);

}  // namespace
}  // namespace shardgrad::cpu
