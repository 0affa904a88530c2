// A model of our own in the program `shardgrad`, and in the library that the installed program loads.

#include <shardgrad/shardgrad.h>

namespace nn = sg::nn;
namespace train = sg::train;

// Options become keys of the configuration: model.inputs, model.width, model.dropout.
struct NetOptions {
  int64_t inputs = 4, width = 32;
  double dropout = 0;
  void list(train::OptionList& options) {
    options.add("inputs", inputs, "columns of the data", {.low = 1});
    options.add("width", width, "units of a hidden layer", {.low = 1});
    options.add("dropout", dropout, "share of hidden units left out", {.low = 0, .high = 1, .below_high = true});
  }
};

struct Net : nn::Module {
  nn::Child<nn::Linear> in, hidden, out;
  nn::Child<nn::Dropout> drop;
  explicit Net(const NetOptions& o)
      : in(child<nn::Linear>("in", o.inputs, o.width)),
        hidden(child<nn::Linear>("hidden", o.width, o.width)),
        out(child<nn::Linear>("out", o.width, 1)),
        drop(child<nn::Dropout>("drop", o.dropout)) {}
  sg::Tensor forward(const sg::Tensor& x) { return out(drop(relu(hidden(relu(in(x)))))); }
};

extern "C" void shardgrad_register(train::Registry& registry) {
  registry.add_model<NetOptions>("net", "two hidden layers", [](const NetOptions& o) { return nn::make<Net>(o); });
}

int main(int argc, char** argv) {
  train::Registry registry;
  shardgrad_register(registry);
  return train::program(argc, argv, registry);
}
