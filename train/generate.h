#pragma once
// Text from a language model:
//
//     auto model = nn::make<nn::Gpt2>(options);
//     std::shared_ptr<const text::Tokenizer> tokenizer = text::load_tokenizer("smollm2");
//     std::string more = train::generate(model, *tokenizer, {"In the beginning"}, {.tokens = 50})[0];
//
// Prompts of one call are read together, and then go on together, one token each at a time; each gets the likeliest
// tokens that it gets alone, and draws of its own: those of the prompt's number in the call.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/nn/language_model.h>
#include <shardgrad/train/sampling.h>
#include <shardgrad/train/text/tokenizer.h>

namespace shardgrad::train {

using Tokens = std::vector<int64_t>;

struct GenerateOptions {
  int64_t tokens = 100;           ///< at most so many for each prompt
  SamplingOptions sampling = {};  ///< which one follows; position 0 is the prompt's first
  Tokens stop = {};               ///< a prompt's text ends with the first of these that comes
  Tokens suppress = {};           ///< tokens that are never drawn
  /// What is taken of the tokens that were drawn, one for each prompt: how ranks agree.
  std::function<Tokens(const Tokens& drawn)> agree = {};
};

/// Told of each token as it comes: the prompt's number, and the token.
using OnToken = std::function<void(int64_t prompt, int64_t token)>;
/// Told of text as it comes, in whole characters.
using OnText = std::function<void(int64_t prompt, std::string_view text)>;

/// What follows each prompt. The model is called in evaluation mode, nothing is recorded; under a sharded model all
/// ranks call together. Throws Error(input), before the model is called, for no prompt, an empty one, a token that is
/// not in the vocabulary, more tokens than the model has positions, and for options that cannot be; and for logits that
/// no token can be drawn from.
std::vector<Tokens> generate(const nn::Child<nn::LanguageModel>& model, const std::vector<Tokens>& prompts,
                             const GenerateOptions& options, const OnToken& on_token = {});
/// The same of texts; no token is drawn that the tokenizer has not, and what is returned and told has no special ones.
std::vector<std::string> generate(const nn::Child<nn::LanguageModel>& model, const text::Tokenizer& tokenizer,
                                  const std::vector<std::string>& prompts, const GenerateOptions& options,
                                  const OnText& on_text = {});

}  // namespace shardgrad::train
