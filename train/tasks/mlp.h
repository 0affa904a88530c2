#pragma once
// A multi-layer perceptron.

#include <string>
#include <vector>

#include <shardgrad/nn/containers.h>
#include <shardgrad/train/options.h>

namespace shardgrad::train {

struct MlpOptions {
  std::vector<int64_t> layers{784, 256, 10};
  std::string activation = "relu";
  void list(OptionList& options);
};

/// Linear layers "layer0", "layer1", … with the activation between them. relu is part of its layer's matrix product;
/// the others are modules "activation0", ….
nn::Child<nn::Sequential> make_mlp(const MlpOptions& options);

}  // namespace shardgrad::train
