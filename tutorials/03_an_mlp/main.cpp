// An MLP: a model is a struct that reads like its mathematics; the training loop is five lines.

#include <cstdio>
#include <iostream>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/tutorials/rung.h>

using sg::Tensor;

// Two layers with a tanh between them: (N, 2) → (N, 16) → (N, 2).
struct Mlp : sg::nn::Module {
  sg::nn::Child<sg::nn::Linear> up = child<sg::nn::Linear>("up", 2, 16);
  sg::nn::Child<sg::nn::Linear> down = child<sg::nn::Linear>("down", 16, 2);
  Tensor forward(const Tensor& x) { return down(sg::tanh(up(x))); }
};

// Points on the plane, and whether they lie inside a circle: no straight line separates the classes.
struct Points {
  Tensor x, labels;
  explicit Points(int64_t count) {
    x = sg::randn({count, 2}, "points");
    std::vector<int64_t> inside;
    auto at = x.to_vector<float>();
    for (size_t i = 0; i < size_t(count); ++i)
      inside.push_back(at[2 * i] * at[2 * i] + at[2 * i + 1] * at[2 * i + 1] < 1.4f);
    labels = sg::from_vector(inside, {count});
  }
};

double accuracy(const sg::nn::Child<Mlp>& model, const Points& points) {
  sg::NoGrad no_grad;  // nothing is recorded, nothing is kept for backward
  Tensor right = sg::eq(sg::argmax(model(points.x), 1), points.labels);
  return sg::mean(right.to(sg::DType::f32)).item();
}

#include YOURS  // solution.cpp, or your copy of exercise.cpp

void mlp(learn::Rung& rung) {
  sg::Context context({.seed = 1});
  Points points(512);
  auto model = sg::nn::make<Mlp>();

  // Parameters have names, shapes and initialisers; values appear at the first call.
  for (const auto& [name, tensor] : model->named_parameters()) std::cout << name << " " << tensor.shape() << "\n";

  sg::optim::AdamW optimizer(model->named_parameters(), {.lr = 0.05}, {{"*.bias", {.weight_decay = 0}}});
  const double count = 512;
  double first = sg::cross_entropy(model(points.x), points.labels, count).item();
  double last = train(model, optimizer, points, 200, count);
  std::printf("the loss fell to less than a fifth: %s\n", last < first / 5 ? "yes" : "no");
  double right = accuracy(model, points);
  std::printf("more than 95 %% of the points are right: %s\n", right > 0.95 ? "yes" : "no");
  rung.require(right > 0.6, sg::concat("after 200 steps of train() ", 100 * right, " % of the points are right"));

  // The same seed gives the same model, element for element, whatever was computed in between.
  auto again = sg::nn::make<Mlp>();
  again->materialize();
  sg::Context other({.seed = 1});
  auto elsewhere = sg::nn::make<Mlp>();
  elsewhere->materialize();
  bool same = again->up->weight.to_vector<float>() == elsewhere->up->weight.to_vector<float>();
  std::printf("weights are a function of seed and name: %s\n", same ? "yes" : "no");

  rung.term("I", 2), rung.term("H", 16), rung.term("O", 2);
  int64_t all = 0, decayed = 0;
  for (const auto& [name, tensor] : model->named_parameters()) {
    all += tensor.numel();
    if (!name.ends_with(".bias")) decayed += tensor.numel();
  }
  rung.count("parameters", double(all)), rung.count("decayed", double(decayed));
}

int main(int count, char** words) { return learn::run(count, words, mlp); }
