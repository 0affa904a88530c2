// What an operation costs besides its arithmetic: an add of one element, forward and backward.

#include <benchmark/benchmark.h>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>

using namespace shardgrad;

static void forward_only(benchmark::State& state) {
  Context context({.threads = 1});
  NoGrad no_grad;
  Tensor a = ones({1}), b = ones({1});
  if (add(a, b).item() != 2) return state.SkipWithError("1 + 1 is not 2");
  for (auto _ : state) benchmark::DoNotOptimize(add(a, b));
}
BENCHMARK(forward_only);

// A chain of `length` recorded adds; time per add.
static void chain(benchmark::State& state, bool with_backward) {
  Context context({.threads = 1});
  constexpr int kLength = 1000;
  Tensor a = ones({1}), x = ones({1}).set_requires_grad();
  for (auto _ : state) {
    Tensor y = x;
    for (int i = 0; i < kLength; ++i) y = add(y, a);
    if (with_backward) {
      x.zero_grad();
      y.backward();
    }
  }
  if (with_backward && x.grad().item() != 1) state.SkipWithError("the gradient of a sum is not 1");
  state.SetItemsProcessed(state.iterations() * kLength);
}
BENCHMARK_CAPTURE(chain, recorded_forward, false);
BENCHMARK_CAPTURE(chain, forward_and_backward, true);

BENCHMARK_MAIN();
