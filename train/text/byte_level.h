#pragma once
// GPT-2's alphabet, in which the vocabulary of a byte-level tokenizer is written: a letter for each byte, so that any
// bytes are a text of printable characters. 188 bytes are the letter of their number; the others are U+0100 and on.

#include <optional>
#include <string>
#include <string_view>

namespace shardgrad::text {

/// Bytes as letters: "In the" becomes "InĠthe".
std::string to_letters(std::string_view bytes);
/// The bytes again; nothing when one of the characters is none of the letters.
std::optional<std::string> from_letters(std::string_view letters);

}  // namespace shardgrad::text
