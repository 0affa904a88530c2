// What a GPU does with our kernels, one JSON object per line; bench/gpu_torch.py does the same work under the same
// names. Bandwidths count the bytes an operation must read and write, GEMMs 2·m·n·k operations, a training pass 6·m·n·k
// per layer (4 in the first, which needs no input gradient). Medians of several runs, of results that were compared
// with the CPU's; operands far larger than the L2 cache, or, for the small MLP, what fits. Limits are measured beside:
// copies by the driver, and products asked of cuBLASLt directly. A row that fails has an "error" in the place of its
// value, and the others are measured all the same; the exit code is then 1.
//
//     gpu_bench [--device cuda] [--only PART] [--tiny]
//
// SHARDGRAD_TF32=1: products in TF32; SHARDGRAD_GEMM=own: by the library's own kernels.

#include <chrono>
#include <cstdlib>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/core/step_graph.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/train/data/data_loader.h>

#include "gpu_bench.h"
#include "gpu_peak.h"
#include "gpu_transformer.h"
#include "ladder.h"

using namespace shardgrad;
using namespace shardgrad::bench;

constinit Rung naive{"naive"}, tiled{"tiled"}, many_each{"many_each"}, tensor_cores{"tensor_cores"};

namespace {

Device device = kCuda;

bool is_set(const char* variable, const std::string& value) {
  const char* found = std::getenv(variable);
  return found && found == value;
}

double tolerance_of(DType dtype) { return dtype == DType::f32 ? 1e-5 : 1e-2; }

Tensor first_rows(const Tensor& x) { return x.detach().rows(0, std::min<int64_t>(x.size(0), 16)); }
Tensor on_host(const Tensor& x) { return first_rows(x).to(kCpu); }

std::string driver_copy(DType dtype) { return concat("copy by the driver ", dtype); }
/// A row in GB/s of work that moves `bytes`, once `right` has shown that what it computes is right.
void bandwidth(const std::string& name, DType dtype, double bytes, const std::function<void()>& right,
               const std::function<void()>& work) {
  std::string limit = driver_copy(dtype), title = concat(name, " ", dtype);
  row(title, [&] {
    right();
    report(title, 1e-9 * bytes / seconds_of(device, 20, work), "GB/s", title == limit ? "" : limit);
  });
}

void bandwidths_in(DType dtype) {
  const int64_t rows = tiny ? 32 : 16384, columns = tiny ? 64 : 4096;
  double tolerance = tolerance_of(dtype), moved = double(rows * columns) * double(size_of(dtype));
  Tensor a = rand({rows, columns}, "a").to(dtype), b = rand({rows, columns}, "b").to(dtype), c = empty_like(a);
  Tensor weight = rand({columns}, "w").to(dtype), bias = rand({columns}, "bias").to(dtype);
  Backend& backend = context().backend(device);
  auto driver = [&] { backend.copy(backend.compute(), c.out().data, a.in().data, a.bytes()); };
  auto is = [&](const char* name, const Tensor& x, const Tensor& expected, double allowed) {
    check(name, first_rows(x), expected, allowed);
  };
  bandwidth(
      "copy by the driver", dtype, 2 * moved, [&] { driver(), is("copy by the driver", c, on_host(a), 0); }, driver);
  NoGrad no_grad;
  bandwidth(
      "copy", dtype, 2 * moved, [&] { copy_into(c, b), is("copy", c, on_host(b), 0); }, [&] { copy_into(c, a); });
  bandwidth(
      "add", dtype, 3 * moved, [&] { is("add", a + b, on_host(a) + on_host(b), tolerance); }, [&] { a + b; });
  auto expected_norm = [&] { return layer_norm(on_host(a), weight.to(kCpu), bias.to(kCpu)); };
  bandwidth(
      "layer_norm", dtype, 2 * moved,
      [&] { is("layer_norm", layer_norm(a, weight, bias), expected_norm(), tolerance); },
      [&] { layer_norm(a, weight, bias); });
  bandwidth(
      "softmax", dtype, 2 * moved, [&] { is("softmax", softmax(a), softmax(on_host(a)), tolerance); },
      [&] { softmax(a); });
}

// topk must read its operand; scatter_add reads three and writes a fourth.
void selections_in(DType dtype) {
  const int64_t rows = tiny ? 32 : 16384, columns = tiny ? 64 : 4096;
  double elements = double(rows * columns), moved = elements * double(size_of(dtype));
  NoGrad no_grad;
  Tensor a = rand({rows, columns}, "a").to(dtype), b = rand({rows, columns}, "b").to(dtype);
  Tensor index = (rand({rows, columns}, "index") * double(columns - 1)).to(DType::i64);
  auto first = [](const Tensor& x) { return topk(x, 10).values; };
  auto added = [](const Tensor& x, const Tensor& to, const Tensor& source) { return scatter_add(x, 1, to, source); };
  bandwidth(
      "topk(10) of rows", dtype, moved, [&] { check("topk", first_rows(first(a)), first(on_host(a)), 0); },
      [&] { first(a); });
  bandwidth(
      "scatter_add along rows", dtype, 3 * moved + 8 * elements,
      [&] {
        Tensor expected = added(on_host(a), on_host(index), on_host(b));
        check("scatter_add", first_rows(added(a, index, b)), expected, 0);
      },
      [&] { added(a, index, b); });
}

void bandwidths() {
  for (DType dtype : {DType::f32, DType::bf16}) bandwidths_in(dtype), selections_in(dtype);
}

// Forward reads the logits, backward reads them and writes their gradient.
void loss_of(const std::string& name, int64_t rows, int64_t columns, DType dtype) {
  Tensor x = randn({rows, columns}, "x").to(dtype).detach().set_requires_grad();
  Tensor labels = (rand({rows}, "labels") * double(columns - 1)).to(DType::i64).detach();
  auto pass = [&, count = double(rows)](const Tensor& logits, const Tensor& classes) {
    logits.zero_grad();
    cross_entropy(logits, classes, count).backward();
  };
  auto right = [&] {
    pass(x, labels);
    Tensor host = on_host(x).set_requires_grad();
    pass(host, on_host(labels));
    check("cross_entropy", first_rows(x.grad()), host.grad(), tolerance_of(dtype));
  };
  bandwidth(name, dtype, 3.0 * double(x.bytes()), right, [&] { pass(x, labels); });
}

void losses() {
  for (DType dtype : {DType::f32, DType::bf16})
    loss_of("cross_entropy forward+backward", tiny ? 32 : 16384, tiny ? 64 : 4096, dtype);
  loss_of("cross_entropy of 50257 columns forward+backward", tiny ? 16 : 8192, tiny ? 101 : 50257, DType::bf16);
}

/// A weight with the state that an update needs.
struct Weight {
  Tensor p, m, v, g, copy;
  Weight(int64_t n, Device where, bool with_copy) {
    TensorOptions options{DType::f32, where};
    progress() = {};  // the same numbers on every device
    p = rand({n}, "p", options), m = rand({n}, "m", options), v = rand({n}, "v", options), g = rand({n}, "g", options);
    if (with_copy) copy = empty({n}, {DType::bf16, where});
  }
  static OutView written(const Tensor& tensor) { return tensor.defined() ? tensor.out() : OutView{}; }
  void sgd() {
    kernels::SgdArgs args{
        .lr = 0.01, .momentum = 0.9, .dampening = 0, .weight_decay = 0, .nesterov = false, .first_step = false};
    launch(kernels::sgd, p, kernels::one_range(p.out(), {m.out(), {}}, written(copy), g.in(), args), Tensor());
  }
  void adamw() {
    kernels::AdamArgs args{.lr = 1e-3,
                           .beta1 = 0.9,
                           .beta2 = 0.999,
                           .eps = 1e-8,
                           .weight_decay = 0.01,
                           .decoupled = true,
                           .bias_correction1 = 0.5,
                           .bias_correction2 = 0.5};
    auto range = kernels::one_range(p.out(), {m.out(), v.out()}, written(copy), g.in(), args);
    launch(kernels::adam, p, range, Tensor());
  }
};

void optimizer(const std::string& title, void (Weight::*update)(), int64_t moved, bool with_copy) {
  const int64_t n = int64_t(tiny ? 1 : 65536) << 10;
  Weight here(1024, device, with_copy), there(1024, kCpu, with_copy), large(n, device, with_copy);
  (here.*update)();
  (there.*update)();
  check(title, here.p, there.p, 1e-6);
  check(title, here.m, there.m, 1e-6);
  if (with_copy) check(title, here.copy, there.copy, 1e-3);
  double bytes = double(n) * double(moved + (with_copy ? 2 : 0));
  double seconds = seconds_of(device, 20, [&] { (large.*update)(); });
  report(title, 1e-9 * bytes / seconds, "GB/s", driver_copy(DType::f32));
}

void optimizers() {
  NoGrad no_grad;
  for (bool with_copy : {false, true})
    for (auto [name, update, moved] : {std::tuple("sgd", &Weight::sgd, 5 * 4), {"adamw", &Weight::adamw, 7 * 4}}) {
      std::string title = concat(name, " f32", with_copy ? " with a copy in bf16" : "");
      row(title, [&, update = update, moved = moved] { optimizer(title, update, moved, with_copy); });
    }
}

void products() {
  NoGrad no_grad;
  bool tf32 = is_set("SHARDGRAD_TF32", "1");
  for (DType dtype : {DType::bf16, DType::f32}) {
    if (tf32 && dtype == DType::bf16) continue;
    std::string kind = dtype == DType::bf16 ? "bf16" : tf32 ? "tf32" : "f32", limit = "cuBLASLt's best " + kind;
    row(limit, [&] {
      double peak = device == kCuda ? cublas_peak(dtype, tf32, tiny ? 64 : kind == "f32" ? 4096 : 8192) : 0;
      if (peak > 0) report(limit, peak, "TFLOP/s");
    });
    double tolerance = kind == "f32" ? 1e-5 : 1e-2;
    for (int64_t n : {8192, 4096}) {
      int64_t side = tiny ? n / 128 : n;
      std::string name = concat("gemm ", side, " ", kind);
      row(name, [&] {
        Tensor a = randn({side, side}, "a").to(dtype), b = randn({side, side}, "b").to(dtype);
        check(name, first_rows(matmul(a, b)), matmul(on_host(a), b.to(kCpu)), tolerance);
        double seconds = seconds_of(device, 10, [&] { matmul(a, b); });
        report(name, 2e-12 * double(side) * double(side) * double(side) / seconds, "TFLOP/s", limit);
      });
    }
  }
}

void convolutions() {
  for (DType dtype : {DType::bf16, DType::f32}) {
    const int64_t samples = tiny ? 2 : 64, channels = tiny ? 8 : 64, side = tiny ? 8 : 32;
    std::string name = concat("conv2d 3 x 3, ", samples, " x ", channels, " x ", side, " x ", side, ' ', dtype);
    row(name, [&] {
      Tensor x = randn({samples, channels, side, side}, "x").to(dtype).set_requires_grad();
      Tensor w = randn({channels, channels, 3, 3}, "w").to(dtype).set_requires_grad(),
             dy = randn(x.shape(), "dy").to(dtype);
      auto gradients = [](const Tensor& image, const Tensor& weight, const Tensor& upstream) {
        conv2d(image, weight, Tensor(), {.padding = 1}).backward(upstream);
      };
      Tensor image = x.detach().to(kCpu).set_requires_grad(), weight = w.detach().to(kCpu).set_requires_grad();
      gradients(image, weight, dy.to(kCpu));
      gradients(x, w, dy);
      check(name, x.grad(), image.grad(), tolerance_of(dtype));
      check(name, w.grad(), weight.grad(), tolerance_of(dtype));
      double operations = 3 * 2e-12 * double(x.numel()) * double(channels) * 9;
      report(name, operations / seconds_of(device, 10, [&] { gradients(x, w, dy); }), "TFLOP/s",
             concat("cuBLASLt's best ", dtype));
    });
  }
}

// The kernels of rungs K3 to K5 of the tutorials, and the library's own product, which goes on from the last ones.
void ladder() {
  if (!naive.has(device.kind, DType::f32) || (device == kCuda && !is_set("SHARDGRAD_GEMM", "own"))) return;
  NoGrad no_grad;
  const int64_t n = tiny ? 64 : 4096;
  for (DType dtype : {DType::f32, DType::bf16}) {
    Tensor a = randn({n, n}, "a").to(dtype), b = randn({n, n}, "b").to(dtype), sums = empty({n, n}), c = empty_like(a);
    Tensor expected = matmul(on_host(a), b.to(kCpu));
    auto climb = [&](const char* name, const Tensor& result, const std::function<void()>& work) {
      std::string title = concat("own matmul ", n, " ", dtype, ", ", name);
      row(title, [&] {
        work();
        check(title, first_rows(result), expected, tolerance_of(dtype));
        report(title, 2e-12 * double(n) * double(n) * double(n) / seconds_of(device, 2, work), "TFLOP/s",
               concat("cuBLASLt's best ", dtype), concat("gemm ", n, " ", dtype));
      });
    };
    auto rung = [&](const char* name, const Rung& kernel) {
      climb(name, sums, [&] { launch(kernel, a, out(sums), a, b); });
    };
    if (dtype == DType::f32)
      rung("naive", naive), rung("tiled", tiled), rung("4 x 4 per thread", many_each);
    else
      rung("tensor cores", tensor_cores);
    climb("the library's", c,
          [&] { launch(kernels::matmul, a, out(c), unwanted(), a, b, Tensor(), kernels::MatmulArgs{}); });
  }
}

/// Four layers, their optimizer and a batch.
struct Training {
  nn::Child<Mlp> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<DType> products;
  Tensor x, target;

  Training(int64_t width, int64_t batch, std::optional<DType> products, bool adamw)
      : model(nn::make<Mlp>(4, width)), products(products) {
    model->materialize();
    if (adamw)
      optimizer = std::make_unique<optim::AdamW>(model->named_parameters(), optim::AdamOptions{.lr = 1e-4});
    else
      optimizer =
          std::make_unique<optim::SGD>(model->named_parameters(), optim::SgdOptions{.lr = 0.01, .momentum = 0.9});
    progress() = {};  // two of them have the same batch
    x = randn({batch, width}, "x"), target = randn({batch, width}, "t");
  }
  Tensor step() {
    Tensor loss;
    {
      Autocast scope(products);
      loss = mse_loss(model(x), target);
    }
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return loss;
  }
};

// Three losses of a small one are those of the CPU.
void check_training(std::optional<DType> products, bool adamw) {
  auto losses = [&](Device where) {
    Context context({.device = where});
    Training training(32, 16, products, adamw);
    std::vector<float> all;
    for (int i = 0; i < 3; ++i) all.push_back(float(training.step().item()));
    return from_vector(all, {3}).to(kCpu);
  };
  Tensor here = losses(device), there = losses(kCpu);
  check("the loss of a training step", here, there, products ? 1e-2 : 1e-5);
}

double operations_of_mlp(int64_t width) {
  return 2.0 * double(2 * width) * double(width) * double(width) * (3 * 4 - 1);
}

void mlp_passes(int64_t width) {
  auto model = nn::make<Mlp>(4, width);
  model->to(DType::bf16);
  model->materialize();
  Tensor x = randn({2 * width, width}, "x").to(DType::bf16), target = randn({2 * width, width}, "t").to(DType::bf16);
  auto pass = [&] {
    mse_loss(model(x), target).backward();
    for (const NamedParameter& p : model->named_parameters()) p.tensor.zero_grad();
  };
  report("mlp 4096 bf16 forward+backward", 1e-12 * operations_of_mlp(width) / seconds_of(device, 5, pass), "TFLOP/s",
         "cuBLASLt's best bf16");
}

void mlp_steps(int64_t width) {
  check_training(DType::bf16, true);
  Training training(width, 2 * width, DType::bf16, true);
  double seconds = seconds_of(device, 5, [&] { training.step(); }), loss = training.step().item();
  SG_CHECK(std::isfinite(loss), "mlp 4096: the loss became ", loss);
  report("mlp 4096 bf16 step", 1e3 * seconds, "ms");
  report("mlp 4096 bf16 step, its products", 1e-12 * operations_of_mlp(width) / seconds, "TFLOP/s",
         "cuBLASLt's best bf16");
}

// What the host needs for a step of many, which a GPU that is faster waits for.
double queued_seconds(Training& training) {
  constexpr int kSteps = 200;
  context().backend(device).compute().synchronize();
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) training.step();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  context().backend(device).compute().synchronize();
  return seconds / kSteps;
}

void small_mlp() {
  check_training({}, false);
  const int64_t width = tiny ? 64 : 256;
  Training training(width, width, {}, false);
  training.step();
  training.step();
  int64_t requests = context().backend(device).info().memory_requests;
  report("mlp 256 f32 step", 1e6 * seconds_of(device, 200, [&] { training.step(); }), "us");
  report("driver allocations after the second step",
         double(context().backend(device).info().memory_requests - requests), "calls");
  report("mlp 256 f32 step, until the host has queued it", 1e6 * queued_seconds(training), "us");
}

// The same as one launch, whose steps have the bits of plain ones.
void captured_mlp() {
  const int64_t width = tiny ? 64 : 256;
  Training plain(width, width, {}, false), captured(width, width, {}, false);
  StepGraph step([&] { return captured.step().detach(); });
  for (int i = 0; i < 6; ++i) {
    float expected = float(plain.step().item()), found = float(step().item());
    SG_CHECK(found == expected, "mlp 256 f32 step, graph: the loss of step ", i, " is ", found, ", and of a plain one ",
             expected);
  }
  report("mlp 256 f32 step, graph", 1e6 * seconds_of(device, 200, [&] { step(); }), "us");
}

// Batches come from the host's memory, each while the step before it runs.
void loaded_mlp() {
  const int64_t width = tiny ? 64 : 256, batches = 16;
  Training training(width, width, {}, false);
  Tensor x = training.x.repeat({batches, 1}).to(kCpu), target = training.target.repeat({batches, 1}).to(kCpu);
  data::DataLoader loader(std::make_shared<data::TensorDataset>(std::vector{x, target}),
                          {.batch = width, .shuffle = false, .device = device});
  int64_t epoch = 0;
  auto pass = [&] {
    for (data::Batch batch : loader.epoch(epoch++)) {
      training.x = batch.fields[0], training.target = batch.fields[1];
      training.step();
    }
  };
  pass();
  check("a batch of the loader", training.x, x.rows((batches - 1) * width, batches * width), 0);
  report("mlp 256 f32 step, its batch from the loader", 1e6 * seconds_of(device, 20, pass) / double(batches), "us");
}

void mlps() {
  const int64_t width = tiny ? 32 : 4096;
  row("mlp 4096 bf16 forward+backward", [&] { mlp_passes(width); });
  row("mlp 4096 bf16 step", [&] { mlp_steps(width); });
  row("mlp 256 f32 step", small_mlp);
  if (device != kCpu) row("mlp 256 f32 step, graph", captured_mlp);
  row("mlp 256 f32 step, its batch from the loader", loaded_mlp);
}

const std::pair<std::string, void (*)()> kParts[] = {{"products", products},
                                                     {"mlps", mlps},
                                                     {"bandwidths", bandwidths},
                                                     {"losses", losses},
                                                     {"convolutions", convolutions},
                                                     {"optimizers", optimizers},
                                                     {"ladder", ladder},
                                                     {"transformers", [] { transformers(device); }}};

}  // namespace

int main(int argc, char** argv) try {
  std::string only;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--tiny")
      tiny = true;
    else if (word == "--device" && i + 1 < argc)
      device = parse_device(argv[++i]);
    else if (word == "--only" && i + 1 < argc)
      only = argv[++i];
    else
      fail_as(ErrorKind::input, "'", word, "' is not understood; options: --device D, --only PART, --tiny");
  }
  Context context({.device = device});
  int run = 0;
  for (auto& [name, part] : kParts)
    if (only.empty() || only == name) row(name, part), ++run;
  SG_CHECK(run > 0, "there is no part ", only,
           "; parts: products, mlps, bandwidths, losses, convolutions, optimizers, ladder, transformers");
  return failed_rows > 0 ? 1 : 0;
} catch (const Error& error) {
  std::cerr << "gpu_bench: " << error.what() << "\n";
  return int(error.kind());
}
