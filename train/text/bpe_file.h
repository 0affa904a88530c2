#pragma once
// A tokenizer.json of Hugging Face that holds a byte-level BPE, as GPT-2, LLaMA 3, SmolLM2 and many others have:
//
//     model           BPE, with ignore_merges; merges as "a b" or ["a", "b"]; a pair's place is its rank
//     pre_tokenizer   ByteLevel, alone or after Split (a pattern; isolated or removed) and Digits, in a Sequence
//     post_processor  none, ByteLevel, TemplateProcessing
//     decoder         ByteLevel
//     added_tokens    without lstrip, rstrip and single_word
//
// Truncation and padding are the caller's business. Whatever else a file asks for (a normalizer, another model,
// dropout, byte_fallback, …) is refused by its name, since texts would be encoded otherwise than there.

#include <string>
#include <vector>

#include <shardgrad/train/text/added_tokens.h>
#include <shardgrad/train/text/bpe.h>
#include <shardgrad/train/text/pre_tokenizer.h>
#include <shardgrad/train/text/tokenizer.h>

namespace shardgrad::text {

inline constexpr int64_t kMostTokens = 1 << 21;  ///< the largest vocabularies have 262,144

struct BpeFile {
  std::vector<Token> tokens;  ///< by id
  Bpe::Model model;
  CutSteps steps;
  std::vector<AddedToken> added;
  std::vector<uint32_t> before, after;  ///< what the template puts around a text
};

/// Throws Error(input), with what is wrong and no path; Error(missing) where patterns cannot be matched.
BpeFile parse_bpe(const std::string& json);

/// A tokenizer.json of these tokens, those of single bytes among them; special ones have the ids after them.
struct NewBpe {
  std::vector<std::string> tokens;  ///< by id: bytes
  std::vector<Merge> merges{};
  std::vector<std::string> special{};
  bool cuts = true;  ///< by GPT-2's pattern; false: a text is one word
};
std::string bpe_json(const NewBpe& bpe);

}  // namespace shardgrad::text
