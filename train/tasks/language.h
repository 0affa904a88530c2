#pragma once
// What a configuration says of a language model.

#include <vector>

#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/llama.h>
#include <shardgrad/train/options.h>

namespace shardgrad::train {

struct Gpt2Choice {
  nn::Gpt2Options model;
  double dropout = 0;  ///< in all three places
  void list(OptionList& options);
};
nn::Child<nn::Gpt2> make_gpt2(const Gpt2Choice& choice);

struct LlamaChoice {
  nn::LlamaOptions model;
  std::vector<double> rope_scaling{};  ///< none, or the members of Llama3Scaling in their order
  void list(OptionList& options);
};
/// Throws Error(input) for a rope_scaling that is none.
nn::Child<nn::Llama> make_llama(const LlamaChoice& choice);

}  // namespace shardgrad::train
