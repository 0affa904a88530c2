#pragma once
// What rungs 6 to 9 have in common. Each has a Trainer, written by hand, which trains the same model on the same
// samples; here is who calls it, counts, and compares what was learned with plain data parallel training.

#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/ledger_history.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/picture/memory.h>
#include <shardgrad/tutorials/rung.h>

namespace by_hand {

using sg::Tensor;
using sg::dist::ProcessGroup;

constexpr int kLayers = 3, kSteps = 5;
constexpr int64_t kSamples = 8;  // of rank 0; each other rank has one more than the rank before it
constexpr int64_t kSmallWidth = 61;
static_assert((kSmallWidth * kSmallWidth + kSmallWidth) % 3 == 2);
constexpr double kLearningRate = 0.01;

/// Layers of width x width weights and width biases, with a relu each. First values are a function of seed and name.
inline sg::nn::Child<sg::nn::Sequential> make_model(int64_t width, int layers = kLayers) {
  auto model = sg::nn::make<sg::nn::Sequential>();
  for (int i = 0; i < layers; ++i) model->add<sg::nn::Linear>(width, width, true, sg::Activation::relu);
  return model;
}

/// This rank's samples of each step, and what the model should say of them.
struct Batches {
  Batches(const ProcessGroup& world, int64_t width) : count(double(samples_below(world.size()) * width)) {
    sg::TagScope data(sg::Category::named<"data">);
    int64_t first = samples_below(world.rank()), end = samples_below(world.rank() + 1);
    for (int step = 0; step < kSteps; ++step) {
      sg::Generator numbers("samples of step " + std::to_string(step));
      x.push_back(sg::clone(numbers.randn({samples_below(world.size()), width}).rows(first, end)));
      target.push_back(sg::abs(x.back()));
    }
  }
  static int64_t samples_below(int64_t rank) { return rank * kSamples + rank * (rank - 1) / 2; }
  std::vector<Tensor> x, target;
  double count;  // elements of all ranks' targets in a step
};

/// Each layer's weights and then its biases.
using Weights = std::vector<std::vector<float>>;

/// Data parallel: every rank holds everything, and gradients are added up over the ranks after backward.
inline Weights data_parallel(ProcessGroup& world, int64_t width, const Batches& batches, int layers = kLayers) {
  auto model = make_model(width, layers);
  std::vector<sg::NamedParameter> parameters = model->named_parameters();
  sg::optim::AdamW optimizer(parameters, {.lr = kLearningRate});
  for (size_t step = 0; step < kSteps; ++step) {
    sg::mse_loss(model(batches.x[step]), batches.target[step], batches.count).backward();
    for (const auto& parameter : parameters) world.all_reduce(parameter.tensor.grad()).host_wait();
    optimizer.step();
    optimizer.zero_grad();
  }
  Weights weights;
  for (size_t i = 0; i < parameters.size(); i += 2) {
    weights.push_back(parameters[i].tensor.to_vector<float>());
    for (float bias : parameters[i + 1].tensor.to_vector<float>()) weights.back().push_back(bias);
  }
  return weights;
}

/// What rank 0 counted in the second step, in which everything exists already.
struct Seen {
  std::map<std::string, int64_t> bytes, peak;  // by owner: after the step, and in it
  int64_t sent = 0, calls = 0;                 // of collectives
  std::string picture;
  Weights weights;  // after the last step
};

inline Seen look(ProcessGroup& world, const std::function<void(size_t step)>& run_step) {
  Seen seen;
  sg::Ledger& ledger = sg::context().ledger();
  sg::Recorder& recorder = sg::context().recorder();
  for (size_t step = 0; step < kSteps; ++step) {
    ledger.reset_peaks();
    sg::LedgerHistory history(ledger, recorder);
    recorder.clear();
    int64_t before = recorder.total_bytes_sent();
    run_step(step);
    if (step != 1 || world.rank() != 0) continue;
    seen.sent = recorder.total_bytes_sent() - before;
    seen.calls = std::ranges::count_if(recorder.records(), [](const sg::Record& record) { return record.number != 0; });
    for (sg::Category::Kind owner : ledger.categories())
      seen.bytes[owner.name()] = ledger.current(owner), seen.peak[owner.name()] = ledger.peak(owner);
    sg::picture::Memory picture{{"memory", "Memory of one step", "Bytes of rank 0 by owner, in the order of changes."}};
    picture.by_order = true;
    picture.bytes = sg::picture::bytes_over_time(history.before(), history.changes(), true);
    seen.picture = draw(picture);
  }
  return seen;
}

/// Trains by hand on so many ranks. Throws Error(input) unless it learns what data parallel training does, to the bit.
template <class Trainer> Seen train(int ranks, int64_t width, const learn::Rung& rung, int layers = kLayers) {
  Seen seen;
  auto body = [&](ProcessGroup& world) {
    Batches batches(world, width);
    Weights expected = data_parallel(world, width, batches, layers);
    auto model = make_model(width, layers);
    model->materialize();
    Trainer trainer(world, model);
    model = {};  // the trainer has taken what it wants to keep
    Seen mine = look(world, [&](size_t step) { trainer.step(batches.x[step], batches.target[step], batches.count); });
    mine.weights = trainer.weights();
    for (size_t i = 0; i < expected.size(); ++i) {
      size_t size = mine.weights[i].size(), numbers = expected[i].size();
      rung.require(
          numbers <= size && size < numbers + size_t(ranks),
          sg::concat("layer ", i, " has ", numbers, " weights and biases, and where W = ", ranks, " with the zeros ",
                     "behind them ", size, " numbers: equal parts need at most ", ranks - 1, " zeros"));
      mine.weights[i].resize(numbers);  // less what was put behind to make equal parts
      rung.require(mine.weights[i] == expected[i], sg::concat("after ", kSteps, " steps on ", ranks, " ranks layer ", i,
                                                              " is not what data parallel training makes of it"));
    }
    if (world.rank() == 0) seen = mine;
  };
  sg::dist::run_ranks(ranks, body, {.threads = 1});
  std::cout << "W = " << ranks << ": the same bits as data parallel training\n";
  return seen;
}

/// The whole of a rung: small models on one to three ranks, and the one that is counted. A layer's D * D + D numbers
/// are always even; three ranks do not divide those of a small one, so what makes equal parts is wrong or right there.
template <class Trainer, int counted_ranks = 4, int64_t counted_width = 256, int counted_layers = kLayers>
void climb(learn::Rung& rung) {
  for (int ranks : {1, 2, 3}) train<Trainer>(ranks, kSmallWidth, rung);
  Seen seen = train<Trainer>(counted_ranks, counted_width, rung, counted_layers);
  std::cout << "in a step rank 0 sends " << seen.sent << " bytes in " << seen.calls << " calls\n";
  rung.term("W", counted_ranks), rung.term("L", counted_layers), rung.term("D", double(counted_width));
  rung.term("F", sizeof(float)), rung.term("M", 2);
  rung.count("shard_bytes", double(seen.bytes["parameter_shard"]));
  rung.count("whole_bytes", double(seen.bytes["gathered_parameter"]));
  rung.count("whole_peak_bytes", double(seen.peak["gathered_parameter"]));
  rung.count("gradient_peak_bytes", double(seen.peak["full_gradient"]));
  rung.count("optimizer_bytes", double(seen.bytes["optimizer_state"]));
  rung.count("sent_bytes", double(seen.sent)), rung.count("calls", double(seen.calls));
  rung.picture(seen.picture);
}

}  // namespace by_hand
