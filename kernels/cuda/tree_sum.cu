// The sum over ranks: a pairwise tree over the parts, neighbours 2i and 2i+1, an odd last one carried up. One thread
// per element; reads each part once and writes y: for W parts of f32, 4·(W + 1) bytes and W - 1 additions per element.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

using kernels::TreeSumArgs;

constexpr int kMaxParts = 256, kLevels = 9;

struct Parts {
  const void* at[kMaxParts];
  int count;
};

/// Parts of f16, bf16 and f32 accumulate in f32, unless one side is f64; integers exactly.
template <class Y, class X>
using Accumulator = std::conditional_t<std::is_same_v<Y, double> || std::is_same_v<X, double>, double, Compute<X>>;

// The parts are pushed on a stack of partial sums as a binary counter counts: stack[k] holds 2^level[k] parts.
template <class Y, class X> __global__ void tree_sum_kernel(Y* y, Parts parts, int64_t n, bool accumulate) {
  using A = Accumulator<Y, X>;
  int64_t i = thread_number();
  if (i >= n) return;
  A stack[kLevels];
  int level[kLevels], top = -1;
  for (int part = 0; part < parts.count; ++part) {
    stack[++top] = convert<A>(load(static_cast<const X*>(parts.at[part]) + i));
    for (level[top] = 0; top > 0 && level[top - 1] == level[top]; --top) {
      stack[top - 1] += stack[top];
      ++level[top - 1];
    }
  }
  for (; top > 0; --top) stack[top - 1] += stack[top];
  store(y + i, convert<Compute<Y>>(stack[0]), accumulate);
}

void tree_sum(const Launch& how, OutView y, TreeSumArgs args) {
  SG_CHECK(args.count >= 1 && args.count <= kMaxParts, "tree_sum of ", args.count, " parts; at most ", kMaxParts);
  Parts parts{};
  parts.count = args.count;
  for (int k = 0; k < args.count; ++k) {
    parts.at[k] = args.parts[k];
    note_input(args.parts[k], size_t(y.numel()) * size_of(args.dtype));
  }
  dispatch(y.dtype, [&]<class Y>() {
    dispatch(args.dtype, [&]<class X>() {
      if constexpr (std::is_same_v<X, Y> || (!std::is_integral_v<X> && !std::is_integral_v<Y>))
        launch<tree_sum_kernel<Y, X>>(how, {blocks_for(y.numel()), kBlock}, y.as<Y>(), parts, y.numel(), y.beta != 0);
      else
        fail_as(ErrorKind::internal, "tree_sum of ", args.dtype, " into ", y.dtype);
    });
  });
}

const Registered registered = add_kernel<tree_sum>(kernels::tree_sum, kAll);

}  // namespace
}  // namespace shardgrad::SG_DEVICE
