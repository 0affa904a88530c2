#include <shardgrad/train/tasks/mlp.h>

#include <shardgrad/nn/activation.h>
#include <shardgrad/nn/linear.h>

namespace shardgrad::train {

void MlpOptions::list(OptionList& options) {
  options.add("layers", layers, "widths from input to output", {.low = 1, .high = 1 << 30, .least_length = 2});
  options.add("activation", activation, "between layers", {.choices = {"relu", "gelu", "tanh", "sigmoid"}});
}

nn::Child<nn::Sequential> make_mlp(const MlpOptions& options) {
  auto mlp = nn::make<nn::Sequential>();
  size_t count = options.layers.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    bool fused = options.activation == "relu" && i + 1 < count;
    std::string number = std::to_string(i), name = "activation" + number;
    mlp->add_named<nn::Linear>("layer" + number, options.layers[i], options.layers[i + 1], true,
                               fused ? Activation::relu : Activation::none);
    if (i + 1 == count || fused) continue;
    if (options.activation == "gelu")
      mlp->add_named<nn::GELU>(name);
    else if (options.activation == "tanh")
      mlp->add_named<nn::Tanh>(name);
    else
      mlp->add_named<nn::Sigmoid>(name);
  }
  return mlp;
}

}  // namespace shardgrad::train
