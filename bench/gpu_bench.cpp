// What a GPU does with our kernels, one JSON object per line; bench/gpu_torch.py does the same work under the same
// names. Bandwidths count the bytes an operation must read and write, GEMMs 2·m·n·k operations, a training pass 6·m·n·k
// per layer (4 in the first, which needs no input gradient). Medians of several runs; operands far larger than the L2
// cache, or, for the small MLP, what fits.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>

#include "gpu_bench.h"

using namespace shardgrad;
using namespace shardgrad::bench;

static void bandwidths() {
  NoGrad no_grad;
  constexpr int64_t n = int64_t(64) << 20, rows = 16384, columns = 4096;
  for (DType dtype : {DType::f32, DType::bf16}) {
    std::string suffix = concat(" ", dtype);
    double size = double(size_of(dtype));
    Tensor a = rand({n}, "a").to(dtype), b = rand({n}, "b").to(dtype), c = empty_like(a);
    report("copy" + suffix, 2e-9 * n * size / seconds_of(kCuda, 20, [&] { copy_into(c, a); }), "GB/s");
    report("add" + suffix, 3e-9 * n * size / seconds_of(kCuda, 20, [&] { a + b; }), "GB/s");
    Tensor x = a.view({rows, columns}), weight = ones({columns}, dtype), bias = zeros({columns}, dtype);
    report("layer_norm" + suffix, 2e-9 * n * size / seconds_of(kCuda, 20, [&] { layer_norm(x, weight, bias); }),
           "GB/s");
    report("softmax" + suffix, 2e-9 * n * size / seconds_of(kCuda, 20, [&] { softmax(x); }), "GB/s");
  }
}

static void optimizer() {
  constexpr int64_t n = int64_t(64) << 20;
  Tensor weight = rand({n}, "weight").set_requires_grad();
  optim::AdamW adamw({{"weight", weight}}, {.lr = 1e-3});
  weight.set_grad(rand({n}, "gradient"));
  report("adamw f32", 7e-9 * n * 4 / seconds_of(kCuda, 20, [&] { adamw.step(); }), "GB/s");
}

static void products() {
  NoGrad no_grad;
  for (auto [dtype, n] : {std::pair(DType::bf16, int64_t(8192)), {DType::bf16, 4096}, {DType::f32, 4096}}) {
    Tensor a = randn({n, n}, "a").to(dtype), b = randn({n, n}, "b").to(dtype);
    double operations = 2.0 * double(n) * double(n) * double(n);
    report(concat("gemm ", n, " ", dtype), 1e-12 * operations / seconds_of(kCuda, 10, [&] { matmul(a, b); }),
           "TFLOP/s");
  }
}

static void large_mlp() {
  constexpr int64_t width = 4096, batch = 8192;
  constexpr int layers = 4;
  auto model = nn::make<Mlp>(layers, width);
  model->to(DType::bf16);
  model->materialize();
  Tensor x = randn({batch, width}, "x").to(DType::bf16), target = randn({batch, width}, "t").to(DType::bf16);
  auto pass = [&] {
    mse_loss(model(x), target).backward();
    for (const NamedParameter& p : model->named_parameters()) p.tensor.zero_grad();
  };
  double operations = 2.0 * double(batch) * double(width) * double(width) * (3 * layers - 1);
  report("mlp 4096 bf16 forward+backward", 1e-12 * operations / seconds_of(kCuda, 5, pass), "TFLOP/s");
}

static void small_mlp() {
  constexpr int64_t width = 256, batch = 256;
  auto model = nn::make<Mlp>(4, width);
  model->materialize();
  optim::SGD sgd(model->named_parameters(), {.lr = 0.01, .momentum = 0.9});
  Tensor x = randn({batch, width}, "x"), target = randn({batch, width}, "t");
  auto step = [&] {
    mse_loss(model(x), target).backward();
    sgd.step();
    sgd.zero_grad();
  };
  step();
  step();
  int64_t requests = context().backend(kCuda).info().memory_requests;
  report("mlp 256 f32 step", 1e6 * seconds_of(kCuda, 200, step), "us");
  report("driver allocations after the second step", double(context().backend(kCuda).info().memory_requests - requests),
         "calls");
}

int main() try {
  Context context({.device = kCuda});
  for (auto* part : {bandwidths, optimizer, products, large_mlp, small_mlp}) part();
  return 0;
} catch (const Error& error) {
  std::cerr << "gpu_bench: " << error.what() << "\n";
  return int(error.kind());
}
