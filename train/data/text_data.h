#pragma once
// Texts as training data: every file is read whole and encoded once, and its tokens are cut into windows
// (token_windows.h). Files follow each other, with the tokenizer's end-of-text token between them where it has one.

#include <string>
#include <vector>

#include <shardgrad/train/data/dataset.h>

namespace shardgrad::data {

struct TextOptions {
  std::vector<std::string> path;    ///< the texts
  std::vector<std::string> test;    ///< texts for tests; empty: the end of the others, a share of test_share
  double test_share = 0.1;          ///< of the windows
  std::string tokenizer = "bytes";  ///< see text::load_tokenizer
  bool parse_special = false;       ///< special tokens that stand in the texts are these tokens, not letters
  int64_t length = 256;             ///< tokens of a sample
};

/// Fields as those of cut_windows; with the tokenizer. Throws Error(input), with the path, for a file that cannot be
/// read or is empty, for texts that are too short for a sample of each part, and what load_tokenizer throws.
Splits read_text(const TextOptions& options);

}  // namespace shardgrad::data
