#pragma once
// Learns a byte-level BPE from texts: cut into words by GPT-2's pattern, the pair of tokens that stands side by side
// most often becomes a token, again and again. Of pairs that are equally frequent the one with the smaller ids is it,
// the left id first, so the result is a function of the texts.

#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/train/text/bpe_file.h>

namespace shardgrad::text {

struct BpeTraining {
  int64_t vocab_size = 0;  ///< with the 256 bytes and the special tokens
  /// In the texts these stand between others, and nothing is learned across them.
  std::vector<std::string> special{"<|endoftext|>"};
};

class BpeTrainer {
 public:
  /// Throws Error(input) for a vocabulary that has no room for bytes and special tokens, and for special tokens that
  /// are empty or equal; Error(missing) in a build without PCRE2.
  explicit BpeTrainer(BpeTraining options);
  /// Counts the words of one more text.
  void add(std::string_view text);
  /// Ids 0 to 255 are the bytes, then come the tokens in the order in which they were learned, then special ones.
  /// Fewer than were asked for where no pair stands twice in the texts.
  NewBpe train() const;

 private:
  BpeTraining options_;
  CutSteps steps_;
  AddedTokens cut_at_;
  TextMap<int64_t> counts_;  // of words
};

}  // namespace shardgrad::text
