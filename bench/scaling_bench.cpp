// All ranks together at batch 256 each against one rank alone at 256, one thread per rank, in alternation:
//
//     mpirun -n 2 --bind-to none scaling_bench [pairs] [strategy]
//
// The model is 784-1024-1024-1024-10 under AdamW. Perfect scaling gives a ratio of 1. The second ratio is that of ranks
// which all train at once but each for itself: what sharing the machine's memory and caches costs with no communication
// at all. The last line is the part of such a step that the control channel takes. Before anything is timed, both ways
// train three steps on the whole batch, and their losses are compared.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/launch/job.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>

#include "bench/control_cost.h"

using namespace shardgrad;

namespace {

constexpr int64_t kBatch = 256, kIn = 784, kOut = 10;
constexpr int kStepsPerTime = 8;

struct Mlp : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", kIn, 1024, true, Activation::relu);
  nn::Child<nn::Linear> b = child<nn::Linear>("b", 1024, 1024, true, Activation::relu);
  nn::Child<nn::Linear> c = child<nn::Linear>("c", 1024, 1024, true, Activation::relu);
  nn::Child<nn::Linear> d = child<nn::Linear>("d", 1024, kOut);
  Tensor forward(const Tensor& x) { return d(c(b(a(x)))); }
};

struct Batch {
  Tensor x, target;
  explicit Batch(int64_t rows) : x(rand({rows, kIn}, "x")), target(rand({rows, kOut}, "target")) {}
};

/// A model, its optimizer and its part of the global batch; sharded where a group is given.
class Training {
 public:
  Training(const Batch& batch, int64_t first, int64_t rows, int64_t global, dist::ProcessGroup* group,
           fsdp::Strategy strategy)
      : denominator_(double(global * kOut)),
        x_(clone(batch.x.rows(first, first + rows))),
        target_(clone(batch.target.rows(first, first + rows))) {
    if (group)
      sharded_ = fsdp::fully_shard(model_.module(), *group, {.strategy = strategy});
    else
      model_->materialize();
    optimizer_ = std::make_unique<optim::AdamW>(model_->named_parameters(), optim::AdamOptions{.lr = 1e-3});
  }
  double step() {
    Tensor loss = mse_loss(model_(x_), target_, denominator_);
    loss.backward();
    optimizer_->step();
    optimizer_->zero_grad();
    return loss.item();
  }
  double seconds_per_step() {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kStepsPerTime; ++i) step();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kStepsPerTime;
  }

 private:
  double denominator_;
  nn::Child<Mlp> model_ = nn::make<Mlp>();
  std::shared_ptr<fsdp::Sharded> sharded_;
  std::unique_ptr<optim::AdamW> optimizer_;
  Tensor x_, target_;
};

void check_losses(const Batch& batch, dist::ProcessGroup& world, fsdp::Strategy strategy) {
  int64_t global = kBatch * world.size();
  Training whole(batch, 0, global, global, nullptr, strategy);
  Training part(batch, kBatch * world.rank(), kBatch, global, &world, strategy);
  for (int i = 0; i < 3; ++i) {
    Tensor sum = from_vector<double>({part.step()}, {1});
    world.all_reduce(sum).host_wait();
    double expected = whole.step();
    SG_CHECK(std::abs(sum.item() - expected) <= 1e-5 * expected, "step ", i, ": the loss is ", sum.item(),
             " on all ranks and ", expected, " on one");
  }
}

// A step of several ranks is over when the slowest rank's is.
double slowest(dist::ProcessGroup& world, double seconds) {
  Tensor all = empty({world.size()}, {DType::f64, kCpu});
  world.all_gather(all, from_vector<double>({seconds}, {1})).host_wait();
  std::vector<double> times = all.to_vector<double>();
  return *std::max_element(times.begin(), times.end());
}

int run(dist::Job& job, int pairs, fsdp::Strategy strategy) {
  dist::ProcessGroup& world = job.world();
  Batch batch(kBatch * world.size());
  check_losses(batch, world, strategy);
  Training alone(batch, 0, kBatch, kBatch, nullptr, strategy);
  Training together(batch, kBatch * world.rank(), kBatch, kBatch * world.size(), &world, strategy);
  together.seconds_per_step();
  std::vector<double> sharded, independent, step;
  for (int pair = 0; pair < pairs; ++pair) {
    world.barrier();
    double one = world.rank() == 0 ? alone.seconds_per_step() : 0;
    world.barrier();
    double each = slowest(world, alone.seconds_per_step());
    world.barrier();
    double all = slowest(world, together.seconds_per_step());
    step.push_back(one * 1e3), independent.push_back(each / one), sharded.push_back(all / one);
  }
  context().recorder().clear();
  together.step();
  int64_t calls = 0;
  for (const Record& record : context().recorder().records()) calls += record.bytes_sent > 0;
  bench::ControlCost cost = bench::control_cost(world);
  if (world.rank() != 0) return 0;
  for (auto* values : {&sharded, &independent, &step}) std::sort(values->begin(), values->end());
  auto print = [&](const std::string& what, const std::vector<double>& values) {
    std::printf("%-32s median %.3f (%.3f to %.3f)\n", what.c_str(), values[values.size() / 2], values.front(),
                values.back());
  };
  print("one rank alone, ms", step);
  print(concat(world.size(), " ranks, each for itself"), independent);
  print(concat(world.size(), " ranks, ", fsdp::name_of(strategy)), sharded);
  double seconds = step[step.size() / 2] * 1e-3 * sharded[sharded.size() / 2];
  std::printf("control channel: %.3f us for each of %lld collectives, monitor %.4f %% of a core: %.4f %% of a step\n",
              cost.collective * 1e6, static_cast<long long>(calls), cost.monitor * 100,
              (cost.collective * double(calls) / seconds + cost.monitor) * 100);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int pairs = argc > 1 ? std::atoi(argv[1]) : 15;
  fsdp::Strategy strategy = fsdp::parse_strategy(argc > 2 ? argv[2] : "zero3");
  auto configure = [](const dist::Bootstrap&) { return dist::JobOptions{.context = {.threads = 1}}; };
  return dist::run_job([&](dist::Job& job) { return run(job, pairs, strategy); }, configure);
}
