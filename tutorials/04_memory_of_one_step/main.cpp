// Memory of one training step, byte by byte: who owns what after forward, backward and the optimizer's step, for one
// process and for four ranks under each strategy.

#include <cstdio>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>

namespace Category = sg::Category;
using sg::Tensor;

constexpr int kRanks = 4;

// Three layers of 1024 x 1024 weights and 1024 biases: 3,148,800 parameters, 12.0 MiB in f32.
sg::nn::Child<sg::nn::Sequential> make_model() {
  auto model = sg::nn::make<sg::nn::Sequential>();
  for (int i = 0; i < 3; ++i) model->add<sg::nn::Linear>(1024, 1024, true, sg::Activation::relu);
  return model;
}

constexpr Category::Kind kColumns[] = {Category::parameter_shard, Category::gathered_parameter, Category::full_gradient,
                                       Category::gradient_shard,  Category::optimizer_state,    Category::activation};

void print_row(const char* when, const sg::Ledger& ledger, bool peak = false) {
  std::printf("%-16s", when);
  for (Category::Kind c : kColumns)
    std::printf(" %11.2f", double(peak ? ledger.peak(c) : ledger.current(c)) / (1 << 20));
  std::printf("\n");
}

// Two steps; the second one, in which every buffer exists already, is printed.
void two_steps(sg::dist::ProcessGroup& world, sg::fsdp::Strategy strategy) {
  sg::Ledger& ledger = sg::context().ledger();
  auto model = make_model();
  auto sharded = sg::fsdp::fully_shard(model.module(), world, {.strategy = strategy});
  sg::optim::AdamW optimizer(model->named_parameters(), {});
  for (int step = 0; step < 2; ++step) {
    auto row = [&](const char* when, bool peak = false) {
      if (step == 1 && world.rank() == 0) print_row(when, ledger, peak);
    };
    ledger.reset_peaks();
    row("before");
    sg::Tensor x = [] {
      sg::TagScope tag(Category::named<"data">);  // none of the columns: a category is its name
      return sg::ones({64, 1024});
    }();
    Tensor loss = sg::sum(model(x));
    row("after forward");
    loss.backward();
    row("after backward");
    optimizer.step();
    optimizer.zero_grad();
    row("after the step");
    row("highest", true);
  }
}

int main() {
  for (auto strategy : {sg::fsdp::Strategy::ddp, sg::fsdp::Strategy::zero2, sg::fsdp::Strategy::zero3}) {
    std::printf("\n%s, %d ranks, MiB on rank 0\n", name_of(strategy), kRanks);
    std::printf("%-16s %11s %11s %11s %11s %11s %11s\n", "", "shards", "gathered", "full grads", "grad shards",
                "optimizer", "activations");
    sg::dist::run_ranks(kRanks, [&](sg::dist::ProcessGroup& world) { two_steps(world, strategy); }, {.threads = 1});
  }
}
