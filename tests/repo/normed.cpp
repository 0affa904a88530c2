// A model with running statistics for program_trains.py, which opens in PyTorch what is saved of it.

#include <shardgrad/shardgrad.h>

namespace nn = sg::nn;

namespace {

// Of pictures of 28 x 28 in ten classes.
struct Normed : nn::Module {
  nn::Child<nn::Conv2d> conv = child<nn::Conv2d>("conv", 1, 4, 3, sg::ConvOptions{.padding = 1});
  nn::Child<nn::BatchNorm2d> norm = child<nn::BatchNorm2d>("norm", 4);
  nn::Child<nn::Linear> hidden = child<nn::Linear>("hidden", 4 * 14 * 14, 16);
  nn::Child<nn::BatchNorm1d> hidden_norm = child<nn::BatchNorm1d>("hidden_norm", 16);
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 16, 10);

  sg::Tensor forward(const sg::Tensor& x) {
    sg::Tensor picture = sg::reshape(x, {x.size(0), 1, 28, 28});
    sg::Tensor halved = sg::max_pool2d(sg::relu(norm(conv(picture))), 2);
    return out(sg::relu(hidden_norm(hidden(sg::flatten(halved, 1)))));
  }
};

}  // namespace

extern "C" void shardgrad_register(sg::train::Registry& registry) {
  registry.add_model("normed", "a convolution and linear layers with norms of the batch",
                     [] { return nn::make<Normed>(); });
}
