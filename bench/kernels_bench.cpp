// Kernels alone, without the library around them. `kernels_bench --benchmark_filter=matmul` compares the own matrix
// product with the library's; a case whose result is wrong reports an error in place of a time.

#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/kernels/cpu/matmul.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

using Floats = std::vector<float>;

Floats numbers(int64_t n, float scale = 1) {
  Floats values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[size_t(i)] = scale * std::sin(float(i % 9973));
  return values;
}
View in(const Floats& values, Shape shape) { return {values.data(), shape, DType::f32, true}; }
OutView out(Floats& values, Shape shape) { return {values.data(), shape, DType::f32, 0, true}; }

// Elements spread over the result, against what they should be.
template <class Expected> bool right(const Floats& y, const Expected& expected) {
  for (size_t i = 0; i < y.size(); i += 1 + y.size() / 50)
    if (!(std::abs(y[i] - expected(int64_t(i))) <= 1e-4 * (1 + std::abs(expected(int64_t(i)))))) return false;
  return true;
}

template <class Step> void time(benchmark::State& state, bool is_right, int64_t items, double flops, const Step& step) {
  if (!is_right) return state.SkipWithError("wrong result");
  for (auto _ : state) step();
  state.SetItemsProcessed(state.iterations() * items);
  if (flops > 0) state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

enum Implementation { kOwn, kChosen };

// c (m, n) = a (m, k) · b (k, n); with `gradient`, a is stored transposed as in aᵀ · b.
void matmul(benchmark::State& state, Implementation which, int64_t m, int64_t n, int64_t k, bool gradient) {
  Context context(Context::Options{.threads = int(state.range(0))});
  Floats a = numbers(m * k), b = numbers(k * n, 0.5f), c(static_cast<size_t>(m * n));
  cpu::Product p{.threads = context.threads(), .m = m, .n = n, .k = k, .trans_a = gradient};
  p.a = reinterpret_cast<char*>(a.data()), p.b = reinterpret_cast<char*>(b.data());
  p.c = reinterpret_cast<char*>(c.data());
  auto kernel = kernels::matmul.find(DeviceKind::cpu, DType::f32);
  Shape shape_a = gradient ? Shape{k, m} : Shape{m, k};
  auto step = [&] {
    if (which == kOwn)
      cpu::own_product(p, kernels::Epilogue::none);
    else
      kernel(Launch{context.threads()}, out(c, {m, n}), {}, in(a, shape_a), in(b, {k, n}), {}, {gradient, false});
  };
  step();
  bool is_right = right(c, [&](int64_t i) {
    double sum = 0;
    for (int64_t q = 0; q < k; ++q)
      sum += double(a[size_t(gradient ? q * m + i / n : i / n * k + q)]) * double(b[size_t(q * n + i % n)]);
    return sum;
  });
  time(state, is_right, m * n, 2.0 * double(m * n * k), step);
}
BENCHMARK_CAPTURE(matmul, own_512, kOwn, 512, 512, 512, false)->Arg(1)->Arg(2);
BENCHMARK_CAPTURE(matmul, chosen_512, kChosen, 512, 512, 512, false)->Arg(1)->Arg(2);
BENCHMARK_CAPTURE(matmul, own_256x1024x1024, kOwn, 256, 1024, 1024, false)->Arg(1)->Arg(2);
BENCHMARK_CAPTURE(matmul, chosen_256x1024x1024, kChosen, 256, 1024, 1024, false)->Arg(1)->Arg(2);
BENCHMARK_CAPTURE(matmul, own_gradient_1024x1024x256, kOwn, 1024, 1024, 256, true)->Arg(1)->Arg(2);
BENCHMARK_CAPTURE(matmul, chosen_gradient_1024x1024x256, kChosen, 1024, 1024, 256, true)->Arg(1)->Arg(2);
BENCHMARK_CAPTURE(matmul, own_64, kOwn, 64, 64, 64, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, chosen_64, kChosen, 64, 64, 64, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, own_100, kOwn, 100, 100, 100, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, chosen_100, kChosen, 100, 100, 100, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, own_256x10x1024, kOwn, 256, 10, 1024, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, chosen_256x10x1024, kChosen, 256, 10, 1024, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, own_256x1024x10, kOwn, 256, 1024, 10, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, chosen_256x1024x10, kChosen, 256, 1024, 10, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, own_gradient_10x1024x256, kOwn, 10, 1024, 256, true)->Arg(1);
BENCHMARK_CAPTURE(matmul, chosen_gradient_10x1024x256, kChosen, 10, 1024, 256, true)->Arg(1);
BENCHMARK_CAPTURE(matmul, own_32, kOwn, 32, 32, 32, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, own_48, kOwn, 48, 48, 48, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, own_16, kOwn, 16, 16, 16, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, chosen_16, kChosen, 16, 16, 16, false)->Arg(1);
BENCHMARK_CAPTURE(matmul, chosen_1, kChosen, 1, 1, 1, false)->Arg(1);

void add(benchmark::State& state) {
  Context context;
  int64_t n = state.range(0);
  Floats a = numbers(n), b = numbers(n, 0.5f), y(a.size());
  auto kernel = kernels::add.find(DeviceKind::cpu, DType::f32);
  auto step = [&] { kernel(Launch{1}, out(y, {n}), in(a, {n}), in(b, {n})); };
  step();
  time(state, right(y, [&](int64_t i) { return a[size_t(i)] + b[size_t(i)]; }), n, 0, step);
}
BENCHMARK(add)->Arg(1)->Arg(1000)->Arg(1000000);

void relu(benchmark::State& state) {
  Context context;
  int64_t n = state.range(0);
  Floats x = numbers(n), y(x.size());
  auto kernel = kernels::relu.find(DeviceKind::cpu, DType::f32);
  auto step = [&] { kernel(Launch{1}, out(y, {n}), in(x, {n})); };
  step();
  time(state, right(y, [&](int64_t i) { return std::max(0.0f, x[size_t(i)]); }), n, 0, step);
}
BENCHMARK(relu)->Arg(1)->Arg(1000)->Arg(1000000);

void gelu(benchmark::State& state) {
  Context context;
  int64_t n = state.range(0);
  Floats x = numbers(n), y(x.size());
  auto kernel = kernels::gelu.find(DeviceKind::cpu, DType::f32);
  auto step = [&] { kernel(Launch{1}, out(y, {n}), in(x, {n})); };
  step();
  time(state, right(y, [&](int64_t i) { return x[size_t(i)] * 0.5 * std::erfc(-x[size_t(i)] / std::sqrt(2.0)); }), n, 0,
       step);
}
BENCHMARK(gelu)->Arg(1000);

void softmax(benchmark::State& state) {
  Context context;
  int64_t rows = state.range(0), cols = state.range(1);
  Floats x = numbers(rows * cols), y(x.size());
  auto kernel = kernels::softmax.find(DeviceKind::cpu, DType::f32);
  auto step = [&] { kernel(Launch{1}, out(y, {rows, cols}), in(x, {rows, cols}), 1, false); };
  step();
  bool is_right = right(y, [&](int64_t i) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(double(x[size_t(i / cols * cols + c)]));
    return std::exp(double(x[size_t(i)])) / sum;
  });
  time(state, is_right, rows * cols, 0, step);
}
BENCHMARK(softmax)->Args({256, 10})->Args({256, 1000});

void layer_norm(benchmark::State& state) {
  Context context;
  int64_t rows = state.range(0), cols = state.range(1);
  Floats x = numbers(rows * cols), weight(static_cast<size_t>(cols), 1.0f), y(x.size());
  auto kernel = kernels::layer_norm.find(DeviceKind::cpu, DType::f32);
  auto step = [&] {
    kernel(Launch{1}, out(y, {rows, cols}), {}, {}, in(x, {rows, cols}), in(weight, {cols}), {}, 1e-5);
  };
  step();
  bool is_right = right(y, [&](int64_t i) {
    double mean = 0, square = 0;
    for (int64_t c = 0; c < cols; ++c) {
      double v = x[size_t(i / cols * cols + c)];
      mean += v / double(cols), square += v * v / double(cols);
    }
    return (x[size_t(i)] - mean) / std::sqrt(square - mean * mean + 1e-5);
  });
  time(state, is_right, rows * cols, 0, step);
}
BENCHMARK(layer_norm)->Args({256, 768});

void adam(benchmark::State& state) {
  Context context;
  int64_t n = state.range(0);
  Floats p(static_cast<size_t>(n), 1.0f), m(p.size()), v(p.size()), g(p.size(), 0.5f);
  auto kernel = kernels::adam.find(DeviceKind::cpu, DType::f32);
  kernels::AdamArgs args{1e-3, 0.9, 0.999, 1e-8, 0.01, true, 0.1, 0.001};
  auto range = kernels::one_range(out(p, {n}), {out(m, {n}), out(v, {n})}, {}, in(g, {n}), args);
  auto step = [&] { kernel(Launch{1}, range, {}); };
  step();
  double expected = 1 - 1e-3 * 0.01 - 1e-3;  // the first step is lr · sign(g)
  time(state, right(p, [&](int64_t) { return expected; }), n, 0, step);
}
BENCHMARK(adam)->Arg(1000)->Arg(1000000);

void random_normal(benchmark::State& state) {
  Context context;
  int64_t n = state.range(0);
  Floats y(static_cast<size_t>(n));
  auto kernel = kernels::random_normal.find(DeviceKind::cpu, DType::f32);
  auto step = [&] { kernel(Launch{1}, out(y, {n}), {1, 2, 0, 0, 1}); };
  step();
  double square = 0;
  for (float value : y) square += double(value) * double(value) / double(n);
  time(state, std::abs(square - 1) < 0.1, n, 0, step);
}
BENCHMARK(random_normal)->Arg(100000);

}  // namespace
}  // namespace shardgrad

BENCHMARK_MAIN();
