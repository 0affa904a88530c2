#pragma once
// Modules that the tests of nn::Module have in common, and words for what they give.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <shardgrad/nn/nn.h>

namespace shardgrad {

using Names = std::vector<std::string>;

inline Names names_of(const std::vector<NamedParameter>& list) {
  Names names;
  for (const NamedParameter& each : list) names.push_back(each.name);
  return names;
}

inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct Block : nn::Module {
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 4, 8);
  nn::Child<nn::Linear> down = child<nn::Linear>("down", 8, 4);
  Tensor forward(const Tensor& x) { return down(relu(up(x))); }
};

struct Stack : nn::Module {
  Tensor scale = param("scale", {4}, nn::init::ones());
  nn::Child<nn::ModuleList<Block>> layers = child<nn::ModuleList<Block>>("layers");
  nn::Child<nn::Linear> head = child<nn::Linear>("head", 4, 3, false);
  Stack() {
    for (int i = 0; i < 2; ++i) layers->add();
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x * scale;
    for (const auto& layer : *layers) y = layer(y);
    return head(y);
  }
};

struct TwoOut : nn::Module {
  nn::Child<nn::Linear> fc = child<nn::Linear>("fc", 4, 4);
  std::pair<Tensor, Tensor> forward(const Tensor& x) { return {fc(x), x * 2.0}; }
};

struct TiedModel : nn::Module {
  nn::Child<nn::Embedding> embed = child<nn::Embedding>("embed", 7, 4);
  nn::Child<nn::Linear> head = child<nn::Linear>("head", 4, 7, false);
  TiedModel() { tie(embed->weight, head->weight); }
  Tensor forward(const Tensor& ids) { return head(embed(ids)); }
};

}  // namespace shardgrad
