// Sixteen bits: what f16 and bf16 cannot hold, gradients that vanish, a loss that is scaled, and what a sharded model
// in bf16 holds and sends.

#include <cmath>
#include <cstdio>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/fsdp/grad_scaler.h>
#include <shardgrad/tutorials/by_hand.h>

#include YOURS  // solution.cpp, or your copy of exercise.cpp

using sg::DType;
using sg::Tensor;
using sg::dist::ProcessGroup;

constexpr int kRanks = 4, kTrained = 20, kGrowth = 4;
constexpr int64_t kWidth = 256, kOutputs = 12;
constexpr double kFirstScale = 65536, kLargest = 16;

void print_numbers() {
  sg::Context context({.threads = 1});
  std::printf("%-8s %14s %14s %14s\n", "", "f32", "bf16", "f16");
  for (auto [name, x] : {std::pair("1/3", 1.0 / 3), {"257", 257.0}, {"70000", 70000.0}, {"2^-26", std::exp2(-26)}}) {
    std::printf("%-8s", name);
    for (DType dtype : {DType::f32, DType::bf16, DType::f16})
      std::printf(" %14.8g", sg::full({1}, x).to(dtype).to(DType::f32).item());
    std::printf("\n");
  }
}

// One sample for each rank; the loss counts each output with a weight of its own, which so is that output's gradient.
Tensor loss_of(sg::nn::Child<sg::nn::Linear>& model, const Tensor& weights) {
  sg::Autocast autocast(DType::f16);
  Tensor x = sg::ones({1, model->weight.shape()[1]});
  return sg::sum(model(x) * weights);
}

// Of gradients 2^-20, 2^-21, … 2^-31: how many are 0 in f16.
int64_t lost(double scale) {
  sg::Context context({.threads = 1});
  auto model = sg::nn::make<sg::nn::Linear>(1, kOutputs, false);
  std::vector<float> weights;
  for (int i = 0; i < kOutputs; ++i) weights.push_back(float(std::exp2(-20 - i)));
  (loss_of(model, sg::from_vector(weights, {kOutputs})) * scale).backward();
  return std::ranges::count(model->weight.grad().to_vector<float>(), 0.0f);
}

// What a training in f16 came to.
struct Course {
  std::string steps;  // '+' for each that was taken, '-' for each that was left out
  double scale = 0;
  std::vector<float> weights;
};

// Eight outputs: the gradient of one is large, those of the others are 2^-26. `Any` is yours or the library's.
template <class Any, class Step> Course train(ProcessGroup& world, Any scaler, Step step) {
  auto model = sg::nn::make<sg::nn::Linear>(8, 8, false);
  auto sharded = sg::fsdp::fully_shard(model.module(), world);
  sg::optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01, .weight_decay = 0});
  std::vector<float> weights(8, float(std::exp2(-26)));
  weights[0] = kLargest;
  Course course;
  for (int i = 0; i < kTrained; ++i) {
    scaler.scale(loss_of(model, sg::from_vector(weights, {8}))).backward();
    course.steps += step(scaler, optimizer) ? '+' : '-';
    optimizer.zero_grad();
  }
  course.scale = scaler.factor();
  course.weights = sg::fsdp::full_state_dict(*sharded, false).at("weight").to_vector<float>();
  return course;
}

Course train_twice(int ranks, const learn::Rung& rung) {
  Course course;
  auto body = [&](ProcessGroup& world) {
    auto untrained = sg::nn::make<sg::nn::Linear>(8, 8, false);
    untrained->materialize();
    std::vector<float> first = untrained->weight.to_vector<float>();
    sg::optim::GradScalerOptions options{.init_scale = kFirstScale, .growth_interval = kGrowth};
    auto step = [](auto& scaler, sg::optim::Optimizer& optimizer) {
      bool stepped = scaler.step(optimizer);
      scaler.update();
      return stepped;
    };
    auto your_step = [](Scaler& scaler, sg::optim::Optimizer& optimizer) { return scaler.step(optimizer); };
    Course expected = train(world, sg::fsdp::sharded_grad_scaler(world, options), step);
    Course mine = train(world, Scaler(world, kFirstScale, kGrowth), your_step);
    for (size_t i = 0; i < first.size(); ++i)
      rung.require(expected.weights[i] != first[i],
                   sg::concat("output ", i / 8, " has learned nothing in ", kTrained, " steps"));
    rung.require(mine.steps == expected.steps, sg::concat("on ", ranks, " ranks, rank ", world.rank(), ": steps ",
                                                          mine.steps, ", the library's ", expected.steps));
    rung.require(mine.scale == expected.scale && mine.weights == expected.weights,
                 sg::concat("on ", ranks, " ranks: another scale or other weights than the library's"));
    if (world.rank() == 0) course = expected;
  };
  sg::dist::run_ranks(ranks, body, {.threads = 1});
  std::printf("W = %d: %s, scale %g, and yours the same\n", ranks, course.steps.c_str(), course.scale);
  return course;
}

// The model of rung 9 under zero3, in f32 or in bf16.
by_hand::Seen hold_and_send(const char* name, const sg::fsdp::Config& config) {
  by_hand::Seen seen;
  auto body = [&](ProcessGroup& world) {
    by_hand::Batches batches(world, kWidth);
    auto model = by_hand::make_model(kWidth);
    auto sharded = sg::fsdp::fully_shard(model.module(), world, config);
    sg::optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
    auto step = [&](size_t i) {
      Tensor y = model(batches.x[i]);
      sg::mse_loss(y.to(DType::f32), batches.target[i], batches.count).backward();
      optimizer.step();
      optimizer.zero_grad();
    };
    by_hand::Seen mine = by_hand::look(world, step);
    if (world.rank() == 0) seen = mine;
  };
  sg::dist::run_ranks(kRanks, body, {.threads = 1});
  std::printf("%-8s", name);
  for (int64_t bytes : {seen.bytes["parameter_shard"], seen.bytes["optimizer_state"], seen.peak["gradient_shard"],
                        seen.peak["gathered_parameter"], seen.peak["full_gradient"], seen.sent})
    std::printf(" %12.1f", double(bytes) / 1024);
  std::printf("\n");
  return seen;
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    print_numbers();
    rung.count("lost", double(lost(1))), rung.count("lost_scaled", double(lost(16)));
    Course course;
    for (int ranks : {1, 2}) course = train_twice(ranks, rung);
    rung.count("skipped", double(std::ranges::count(course.steps, '-'))), rung.count("last_scale", course.scale);
    std::printf("\nzero3, %d ranks, KiB on rank 0\n%-8s %12s %12s %12s %12s %12s %12s\n", kRanks, "", "shards",
                "optimizer", "grad shards", "gathered", "full grads", "sent");
    hold_and_send("f32", {});
    by_hand::Seen seen = hold_and_send("bf16", {.param_dtype = DType::bf16, .reduce_dtype = DType::bf16});
    rung.count("shard_bytes", double(seen.bytes["parameter_shard"]));
    rung.count("optimizer_bytes", double(seen.bytes["optimizer_state"]));
    rung.count("whole_peak_bytes", double(seen.peak["gathered_parameter"])),
        rung.count("sent_bytes", double(seen.sent));
    rung.picture(seen.picture);
    rung.term("W", kRanks), rung.term("L", by_hand::kLayers), rung.term("D", double(kWidth)), rung.term("M", 2);
    rung.term("F", sizeof(float)), rung.term("H", 2), rung.term("N", kTrained), rung.term("G", kGrowth);
    rung.term("K", 5), rung.term("smallest", 24), rung.term("last", 31), rung.term("shift", 4);
    rung.term("top", 32768), rung.term("g", kLargest);
  });
}
