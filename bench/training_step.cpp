// A training step of an MLP as a server for bench/compare_pytorch.py: the driver lets this program and PyTorch run in
// turn and compares. Arguments: BATCH THREADS SIZE SIZE [SIZE…]. Protocol: "check" prints the losses of three steps
// from fixed weights; "run N" prints the seconds that N steps took.

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/sgd.h>

using namespace shardgrad;

struct Mlp : nn::Module {
  std::vector<nn::Child<nn::Linear>> layers;
  explicit Mlp(const std::vector<int64_t>& sizes) {
    for (size_t i = 0; i + 1 < sizes.size(); ++i)
      layers.push_back(child<nn::Linear>("layer" + std::to_string(i), sizes[i], sizes[i + 1], true,
                                         i + 2 < sizes.size() ? Activation::relu : Activation::none));
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return x;
  }
};

// Values that both sides compute alike: sin(i · step) · scale.
static Tensor wave(const Shape& shape, double step, double scale) {
  std::vector<float> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(std::sin(double(i) * step) * scale);
  return from_vector(values, shape);
}

int main(int argc, char** argv) {
  if (argc < 5) return std::cerr << "usage: training_step BATCH THREADS SIZE SIZE [SIZE…]\n", 2;
  int64_t batch = std::atoll(argv[1]);
  Context context({.threads = std::atoi(argv[2])});
  std::vector<int64_t> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));

  auto model = nn::make<Mlp>(sizes);
  model->materialize();
  for (const NamedParameter& p : model->named_parameters())
    copy_into(p.tensor.detach(), wave(p.tensor.shape(), 0.7, 1 / std::sqrt(double(p.tensor.size(-1)))));
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.01, .momentum = 0.9});
  Tensor x = wave({batch, sizes.front()}, 0.3, 1), target = wave({batch, sizes.back()}, 0.11, 1);
  auto step = [&] {
    Tensor loss = mse_loss(model(x), target);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return loss;
  };

  for (std::string word; std::cin >> word;) {
    if (word == "check") {
      for (int i = 0; i < 3; ++i) std::cout << step().item() << ' ';
      std::cout << std::endl;
      continue;
    }
    int count = 0;
    std::cin >> count;
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) step();
    std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << std::endl;
  }
}
