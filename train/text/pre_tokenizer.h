#pragma once
// How a byte-level tokenizer cuts a text into words, within which alone it merges.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/train/text/pattern.h>

namespace shardgrad::text {

/// GPT-2's: contractions, and letters, digits or other signs with the space before them.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// One step: cuts every piece that the step before has made.
struct CutStep {
  std::shared_ptr<const Pattern> pattern{};  ///< null: pieces stay whole
  bool keep_matches = true, keep_gaps = true;
  bool space_before = false;  ///< a piece that does not begin with a space gets one
};

using CutSteps = std::vector<CutStep>;

/// Calls `word` for what the steps cut a text into, in order.
using TakeWord = std::function<void(std::string_view word)>;
void cut(std::string_view text, const CutSteps& steps, const TakeWord& word);

}  // namespace shardgrad::text
