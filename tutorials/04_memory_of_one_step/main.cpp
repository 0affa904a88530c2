// Memory of one training step in one process: who owns which byte after forward, after backward and after the step.

#include <cstdio>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/ledger_history.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/picture/memory.h>
#include <shardgrad/tutorials/rung.h>

#include YOURS  // solution.cpp, or your copy of exercise.cpp

using sg::Tensor;
namespace Category = sg::Category;

// A plain model's gradients belong to the same owner as those of its activations: both are made by backward.
constexpr Category::Kind kGradients = Category::named<"activation_gradient">;
constexpr Category::Kind kColumns[] = {Category::parameter_shard, Category::activation, kGradients,
                                       Category::optimizer_state};

void print_row(const char* when, const sg::Ledger& ledger) {
  std::printf("%-16s", when);
  for (Category::Kind c : kColumns) std::printf(" %12.2f", double(ledger.current(c)) / (1 << 20));
  std::printf("\n");
}

sg::nn::Child<sg::nn::Sequential> make_model(const Sizes& sizes) {
  auto model = sg::nn::make<sg::nn::Sequential>();
  for (int i = 0; i < sizes.layers; ++i)
    model->add<sg::nn::Linear>(sizes.width, sizes.width, true, sg::Activation::relu);
  return model;
}

Tensor make_batch(const Sizes& sizes) {
  sg::TagScope tag(Category::named<"data">);  // none of the columns: a category is its name
  return sg::ones({sizes.batch, sizes.width});
}

// What the ledger counted at the moment when each owner has most.
Bytes two_steps(const Sizes& sizes, learn::Rung* rung) {
  sg::Context context({.threads = 1});
  sg::Ledger& ledger = context.ledger();
  auto model = make_model(sizes);
  sg::optim::AdamW optimizer(model->named_parameters(), {});
  Bytes seen;
  for (int step = 0; step < 2; ++step) {
    bool second = step == 1;  // in which everything exists already
    auto row = [&](const char* when) {
      if (second && rung) print_row(when, ledger);
    };
    sg::LedgerHistory history(ledger, context.recorder());
    sg::picture::Memory picture{
        {"memory", "Memory of one step", "Bytes by owner, in the order in which they changed."}};
    auto mark = [&](const char* name) { picture.marks.push_back({double(history.changes().size()), name}); };
    ledger.reset_peaks();
    row("before");
    mark("forward");
    Tensor loss = sg::sum(model(make_batch(sizes)));
    row("after forward");
    seen.activations = ledger.current(Category::activation);
    mark("backward");
    loss.backward();
    row("after backward");
    seen.gradients = ledger.current(kGradients);
    mark("step");
    optimizer.step();
    optimizer.zero_grad();
    row("after the step");
    seen.parameters = ledger.current(Category::parameter_shard);
    seen.optimizer = ledger.current(Category::optimizer_state);
    picture.by_order = true;
    picture.bytes = sg::picture::bytes_over_time(history.before(), history.changes(), true);
    if (!second || !rung) continue;
    rung->picture(draw(picture));
    rung->count("backward_peak_bytes", double(ledger.peak(kGradients)));
  }
  return seen;
}

void check_yours(const Sizes& sizes, learn::Rung& rung) {
  Bytes seen = two_steps(sizes, nullptr), yours = bytes_of_one_step(sizes);
  auto compare = [&](const char* what, int64_t counted, int64_t predicted) {
    rung.require(counted == predicted,
                 sg::concat("bytes_of_one_step, ", what, " of ", sizes.layers, " layers of width ", sizes.width,
                            ", batch ", sizes.batch, ": it says ", predicted, ", the ledger counted ", counted));
  };
  compare("parameters", seen.parameters, yours.parameters);
  compare("gradients", seen.gradients, yours.gradients);
  compare("optimizer", seen.optimizer, yours.optimizer);
  compare("activations", seen.activations, yours.activations);
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    const Sizes sizes{.layers = 6, .width = 1000, .batch = 80};
    std::printf("one process, MiB\n%-16s %12s %12s %12s %12s\n", "", "parameters", "activations", "gradients",
                "optimizer");
    Bytes seen = two_steps(sizes, &rung);
    rung.term("L", sizes.layers), rung.term("D", double(sizes.width)), rung.term("B", double(sizes.batch));
    rung.term("F", sizeof(float)), rung.term("M", 2);
    rung.count("parameter_bytes", double(seen.parameters));
    rung.count("gradient_bytes", double(seen.gradients));
    rung.count("optimizer_bytes", double(seen.optimizer));
    rung.count("activation_bytes", double(seen.activations));
    for (const Sizes& each : {Sizes{1, 64, 8}, Sizes{3, 128, 64}, Sizes{5, 64, 1}}) check_yours(each, rung);
    std::printf("bytes_of_one_step agrees with the ledger: yes\n");
  });
}
