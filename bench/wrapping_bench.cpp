// The same model in many units and in one, zero3 and zero2: peak memory of a rank by the ledger, and time of a step.
//
//     mpirun -n 2 --bind-to none wrapping_bench [rounds]
//
// The model is twelve layers of 1024 under AdamW, 64 samples per rank, one thread per rank. The ways take turns, and
// their losses are compared before anything is timed.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/launch/job.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>

using namespace shardgrad;

namespace {

constexpr int64_t kRows = 64, kWidth = 1024, kLayers = 12;
constexpr int kStepsPerTime = 4;

/// Three layers.
struct Block : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", kWidth, kWidth, true, Activation::relu);
  nn::Child<nn::Linear> b = child<nn::Linear>("b", kWidth, kWidth, true, Activation::relu);
  nn::Child<nn::Linear> c = child<nn::Linear>("c", kWidth, kWidth);
  Tensor forward(const Tensor& x) { return c(b(a(x))); }
};

struct Net : nn::Module {
  nn::Child<nn::ModuleList<Block>> blocks = child<nn::ModuleList<Block>>("blocks");
  Net() {
    for (int64_t i = 0; i < kLayers / 3; ++i) blocks->add();
  }
  Tensor forward(Tensor x) {
    for (const auto& block : *blocks) x = block(x);
    return x;
  }
};

struct Way {
  std::string units;
  fsdp::Config config;
};

class Training {
 public:
  Training(dist::ProcessGroup& world, const Way& way)
      : units_(way.units),
        sharded_(fsdp::fully_shard(model_.module(), world, way.config)),
        denominator_(double(kRows * world.size() * kWidth)) {
    x_ = rand({kRows, kWidth}, concat("x", world.rank()));
    target_ = rand({kRows, kWidth}, concat("target", world.rank()));
  }
  double step() {
    Tensor loss = mse_loss(model_(x_), target_, denominator_);
    loss.backward();
    optimizer_.step();
    optimizer_.zero_grad();
    return loss.item();
  }
  void time() {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kStepsPerTime; ++i) step();
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    times_.push_back(took.count() / kStepsPerTime);
  }
  /// What a step adds to what is there between steps, by category.
  void measure() {
    Ledger& ledger = context().ledger();
    int64_t before = ledger.current();
    ledger.reset_peaks();
    step();
    peak_ = ledger.peak() - before;
    gathered_ = ledger.peak(Category::gathered_parameter);
    gradients_ = ledger.peak(Category::full_gradient);
  }
  void print() {
    std::sort(times_.begin(), times_.end());
    auto mib = [](int64_t bytes) { return double(bytes) / (1 << 20); };
    std::printf("%-28s %6zu %10.1f %10.1f %10.1f %10.1f (%.1f to %.1f)\n", units_.c_str(), sharded_->units().size(),
                mib(gathered_), mib(gradients_), mib(peak_), times_[times_.size() / 2], times_.front(), times_.back());
  }

 private:
  std::string units_;
  nn::Child<Net> model_ = nn::make<Net>();
  std::shared_ptr<fsdp::Sharded> sharded_;
  optim::AdamW optimizer_{model_->named_parameters(), {.lr = 1e-4}};
  double denominator_;
  Tensor x_, target_;
  std::vector<double> times_;
  int64_t peak_ = 0, gathered_ = 0, gradients_ = 0;
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (fsdp::Strategy strategy : {fsdp::Strategy::zero3, fsdp::Strategy::zero2})
    for (auto [units, policy] : {std::pair("each layer", fsdp::wrap_by_type({"Linear"})),
                                 std::pair("blocks of three layers", fsdp::wrap_by_type({"Block"})),
                                 std::pair("one root unit", fsdp::wrap_by_size(int64_t(1) << 40))})
      all.push_back({concat(fsdp::name_of(strategy), ", ", units), {.strategy = strategy, .wrap = policy}});
  return all;
}

int run(dist::Job& job, int rounds) {
  dist::ProcessGroup& world = job.world();
  std::vector<std::unique_ptr<Training>> trainings;
  for (const Way& way : ways()) trainings.push_back(std::make_unique<Training>(world, way));
  for (int i = 0; i < 2; ++i) {
    double expected = trainings[0]->step();
    for (size_t way = 1; way < trainings.size(); ++way) {
      double loss = trainings[way]->step();
      SG_CHECK(loss == expected, "step ", i, ": the loss is ", loss, " in one way and ", expected, " in another");
    }
  }
  for (auto& training : trainings) training->measure();
  for (int round = 0; round < rounds; ++round)
    for (auto& training : trainings) {
      world.barrier();
      training->time();
    }
  world.barrier();
  if (world.rank() != 0) return 0;
  std::printf("MiB above what is there between steps; ms per step: median (range)\n%-28s %6s %10s %10s %10s %10s\n", "",
              "units", "gathered", "gradients", "all", "ms");
  for (auto& training : trainings) training->print();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  auto configure = [](const dist::Bootstrap&) { return dist::JobOptions{.context = {.threads = 1}}; };
  return dist::run_job([&](dist::Job& job) { return run(job, rounds); }, configure);
}
