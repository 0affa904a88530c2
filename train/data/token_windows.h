#pragma once
// A text's tokens as samples: sample i of length T are tokens [i T, i T + T), and its targets those that follow them.
// So the windows of T + 1 tokens overlap by one, and every token but the first is a target once in an epoch. In which
// order they come is the loader's business (data_loader.h): a function of (seed, epoch).

#include <memory>

#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/data/token_source.h>
#include <shardgrad/train/text/tokenizer.h>

namespace shardgrad::data {

struct WindowOptions {
  int64_t length = 256;                                ///< T
  double test_share = 0.1;                             ///< of the samples, rounded; at least one
  int64_t vocabulary = 0;                              ///< ids are below; 0: the tokenizer's, or whatever is there
  std::shared_ptr<const text::Tokenizer> tokenizer{};  ///< that the tokens are of, if it is known
};

/// Inputs i64 (T), targets i64 (T), whose classes are the vocabulary: the option's, the tokenizer's, or one more than
/// the largest id. `test` may be null: then the last samples of `train` are the test, so it begins where a window does.
/// Reads all tokens once. Throws Error(input), with name and value, for what is too short for a sample of each part,
/// and for an id that is not in the vocabulary, or not in the tokenizer's, which may be smaller.
Splits cut_windows(std::shared_ptr<const TokenSource> train, std::shared_ptr<const TokenSource> test,
                   const WindowOptions& options);

}  // namespace shardgrad::data
