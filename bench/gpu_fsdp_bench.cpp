// What sharding costs on a GPU, one JSON object per line: a step of one rank through fully_shard against the plain one,
// the step with parameters in bf16, shards that come from host memory against a copy of pinned memory, and, on request,
// a trace of an offloaded step. What fails is a row with an "error", and what comes after it is measured all the same.
//
//     gpu_fsdp_bench [--device cuda] [--width 4096] [--trace FILE] [--tiny]

#include <cstring>
#include <fstream>
#include <memory>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/train/trace.h>

#include "gpu_bench.h"
#include "gpu_transformer.h"

using namespace shardgrad;
using namespace shardgrad::bench;

namespace {

struct Options {
  Device device = kCuda;
  int64_t width = 4096;
  std::string trace;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--tiny") {
      tiny = true, options.width = 64, --i;
      continue;
    }
    SG_CHECK(!value.empty(), name, " needs a value; options: --device, --width, --trace, --tiny");
    if (name == "--device")
      options.device = parse_device(value);
    else if (name == "--width")
      options.width = std::stoll(value);
    else if (name == "--trace")
      options.trace = value;
    else
      fail_as(ErrorKind::input, "there is no option ", name, "; options: --device, --width, --trace, --tiny");
  }
  return options;
}

/// Four layers and their optimizer, plain or sharded.
class Training {
 public:
  static constexpr int kLayers = 4;

  Training(const Options& options, int64_t batch, dist::ProcessGroup* group, const fsdp::Config& config = {})
      : model_(nn::make<Mlp>(kLayers, options.width)) {
    if (group)
      sharded_ = fsdp::fully_shard(model_.module(), *group, config);
    else
      model_->materialize();
    std::vector<NamedParameter> parameters = model_->named_parameters();
    if (config.param_dtype)
      optimizer_ = std::make_unique<optim::AdamW>(parameters, optim::AdamOptions{.lr = 1e-4});
    else
      optimizer_ = std::make_unique<optim::SGD>(parameters, optim::SgdOptions{.lr = 0.01, .momentum = 0.9});
    progress() = {};  // every run has the same batch
    x_ = randn({batch, options.width}, "x");
    target_ = randn({batch, options.width}, "t");
  }
  void evaluate() {
    NoGrad no_grad;
    model_(x_);
  }
  Tensor step() {
    Tensor loss = mse_loss(model_(x_).to(target_.dtype()), target_, double(target_.numel() * context().world_size()));
    loss.backward();
    optimizer_->step();
    optimizer_->zero_grad();
    return loss;
  }

 private:
  nn::Child<Mlp> model_;
  std::shared_ptr<fsdp::Sharded> sharded_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor x_, target_;
};

void one_rank(const Options& options, dist::ProcessGroup& group) {
  Training plain(options, 2 * options.width, nullptr), sharded(options, 2 * options.width, &group);
  for (int i = 0; i < 2; ++i) {
    double expected = plain.step().item(), found = sharded.step().item();
    SG_CHECK(expected == found && std::isfinite(found), "sharded, the loss is ", found, " instead of ", expected);
  }
  std::vector<double> ratios;
  for (int pair = 0; pair < 5; ++pair) {
    double without = seconds_of(options.device, 3, [&] { plain.step(); });
    ratios.push_back(seconds_of(options.device, 3, [&] { sharded.step(); }) / without);
  }
  std::ranges::sort(ratios);
  report("fully_shard, one rank, over the plain step", 100 * (ratios[2] - 1), "%");
}

// The parameters stay on the GPU in bf16, and the optimizer writes them in the pass that updates their f32 originals.
void narrow_parameters(const Options& options, dist::ProcessGroup& group) {
  fsdp::Config config{.strategy = fsdp::Strategy::ddp, .param_dtype = DType::bf16, .reduce_dtype = DType::f32};
  Training wide(options, 2 * options.width, nullptr), narrow(options, 2 * options.width, &group, config);
  double expected = wide.step().item(), found = narrow.step().item();
  SG_CHECK(std::abs(found - expected) <= 1e-2 * expected, "in bf16, the loss is ", found, " instead of ", expected);
  double seconds = seconds_of(options.device, 5, [&] { narrow.step(); });
  report("mlp 4096 bf16 step, parameters kept in bf16", 1e3 * seconds, "ms", "", "mlp 4096 bf16 step");
}

void narrow_gpt2(const Options& options, dist::ProcessGroup& group) {
  fsdp::Config config{.strategy = fsdp::Strategy::ddp, .param_dtype = DType::bf16, .reduce_dtype = DType::f32};
  {
    progress() = {};
    Gpt2Training wide(small_gpt2(), 2, {}), narrow(small_gpt2(), 2, {}, &group, config);
    double expected = wide.step().item(), found = narrow.step().item();
    SG_CHECK(std::abs(found - expected) <= 1e-2 * expected, "in bf16, the loss is ", found, " instead of ", expected);
  }
  Gpt2Training training(measured_gpt2(), measured_samples(), {}, &group, config);
  double seconds = seconds_of(options.device, 2, [&] { training.step(); });
  report("gpt2 124M bf16 step, parameters kept in bf16", 1e-3 * double(training.tokens()) / seconds, "Ktoken/s", "",
         "gpt2 124M bf16 step");
}

double gigabytes_per_second(const Options& options, bool to_device, int64_t bytes) {
  Tensor host = empty_on_host({bytes}, DType::u8, options.device), here = empty({bytes}, {DType::u8, options.device});
  std::memset(host.out().data, 1, size_t(bytes));
  Backend& backend = context().backend(options.device);
  const Tensor &to = to_device ? here : host, &from = to_device ? host : here;
  auto copy = [&] { backend.copy(backend.compute(), to.out().data, from.in().data, size_t(bytes)); };
  return 1e-9 * double(bytes) / seconds_of(options.device, 4, copy);
}

// With few samples an evaluation takes as long as the shards take to come.
void offload(const Options& options, dist::ProcessGroup& group) {
  int64_t bytes = Training::kLayers * (options.width + 1) * options.width * 4;
  double up = gigabytes_per_second(options, true, bytes), down = gigabytes_per_second(options, false, bytes);
  report("pinned copy to the GPU", up, "GB/s");
  report("pinned copy from the GPU", down, "GB/s");
  Training training(options, 8, &group, {.move_params_to_cpu = true});
  double rate = 1e-9 * double(bytes) / seconds_of(options.device, 4, [&] { training.evaluate(); });
  report("offloaded shards to the GPU", rate, "GB/s", "pinned copy to the GPU");
}

void trace(const Options& options, dist::ProcessGroup& group) {
  Training training(options, 2 * options.width, &group, {.move_params_to_cpu = true});
  training.step();
  training.step();
  Recorder& recorder = context().recorder();
  recorder.clear();
  recorder.set_tracing(true);
  training.step();
  context().backend(options.device).compute().synchronize();
  recorder.set_tracing(false);
  std::ofstream(options.trace) << train::trace_file({train::trace_events({.records = recorder.records()})});
}

}  // namespace

int main(int argc, char** argv) try {
  Options options = parse(argc, argv);
  auto body = [&](dist::ProcessGroup& group) {
    row("fully_shard, one rank", [&] { one_rank(options, group); });
    row("parameters kept in bf16", [&] { narrow_parameters(options, group); });
    row("gpt2, parameters kept in bf16", [&] { narrow_gpt2(options, group); });
    row("offloaded shards", [&] { offload(options, group); });
    if (!options.trace.empty()) row("trace of an offloaded step", [&] { trace(options, group); });
  };
  dist::run_ranks(1, body, {.device = options.device});
  return failed_rows > 0 ? 1 : 0;
} catch (const Error& error) {
  std::cerr << "gpu_fsdp_bench: " << error.what() << "\n";
  return int(error.kind());
}
