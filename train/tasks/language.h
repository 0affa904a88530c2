#pragma once
// What a configuration says of a language model.

#include <vector>

#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/llama.h>
#include <shardgrad/train/options.h>

namespace shardgrad::train {

/// More are a slip of the hand, which would take minutes: the time to make them grows with the square of their number.
constexpr int64_t kMostBlocks = 4096;

struct Gpt2Choice {
  nn::Gpt2Options model;
  double dropout = 0;  ///< in all three places
  void list(OptionList& options);
  /// The model's, with dropout in its places.
  nn::Gpt2Options options() const;
};
nn::Child<nn::Gpt2> make_gpt2(const Gpt2Choice& choice);

struct LlamaChoice {
  nn::LlamaOptions model;
  std::vector<double> rope_scaling{};  ///< none, or the members of Llama3Scaling in their order
  void list(OptionList& options);
  /// The model's, with rope_scaling in its place. Throws Error(input) for one that is none.
  nn::LlamaOptions options() const;
};
/// Throws as LlamaChoice::options does.
nn::Child<nn::Llama> make_llama(const LlamaChoice& choice);

}  // namespace shardgrad::train
