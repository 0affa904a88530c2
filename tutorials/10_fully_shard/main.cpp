// fully_shard: what three strategies hold in memory, byte by byte; then the model of rungs 6 to 9 by the library,
// beside the file that you wrote.

#include <cstdio>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/tutorials/by_hand.h>

#include YOURS  // solution.cpp, or your copy of exercise.cpp

namespace rung_9 {  // which includes nothing that is not included above
#include <shardgrad/tutorials/09_zero3_by_hand/solution.cpp>
}

namespace Category = sg::Category;

constexpr int kRanks = 4;
constexpr int64_t kWidth = 256;

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
  auto model = by_hand::make_model(1024);
  auto sharded = sg::fsdp::fully_shard(model.module(), world, {.strategy = strategy});
  sg::optim::AdamW optimizer(model->named_parameters(), {});
  for (int step = 0; step < 2; ++step) {
    auto row = [&](const char* when, bool peak = false) {
      if (step == 1 && world.rank() == 0) print_row(when, ledger, peak);
    };
    ledger.reset_peaks();
    row("before");
    sg::Tensor x = [] {
      sg::TagScope tag(Category::named<"data">);
      return sg::ones({64, 1024});
    }();
    sg::Tensor loss = sg::sum(model(x));
    row("after forward");
    loss.backward();
    row("after backward");
    optimizer.step();
    optimizer.zero_grad();
    row("after the step");
    row("highest", true);
  }
}

void print_strategies() {
  for (auto strategy : {sg::fsdp::Strategy::ddp, sg::fsdp::Strategy::zero2, sg::fsdp::Strategy::zero3}) {
    std::printf("\n%s, %d ranks, MiB on rank 0\n", name_of(strategy), kRanks);
    std::printf("%-16s %11s %11s %11s %11s %11s %11s\n", "", "shards", "gathered", "full grads", "grad shards",
                "optimizer", "activations");
    std::fflush(stdout);
    auto body = [&](sg::dist::ProcessGroup& world) { two_steps(world, strategy); };
    sg::dist::run_ranks(kRanks, body, {.threads = 1});
  }
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    for (int ranks = 1; ranks <= kRanks; ++ranks) {
      bool same = by_hand::train<Trainer>(ranks, kWidth, rung).weights ==
                  by_hand::train<rung_9::Trainer>(ranks, kWidth, rung).weights;
      rung.require(same, sg::concat("on ", ranks, " ranks the library's zero3 learns something else than rung 9"));
      std::printf("W = %d: the library's zero3 and rung 9 learn the same bits\n", ranks);
    }
    by_hand::climb<Trainer, 6, 105, 7>(rung);
    print_strategies();
  });
}
