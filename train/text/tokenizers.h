#pragma once
// Tokenizers by what they are made of; load_tokenizer of tokenizer.h chooses.

#include <shardgrad/train/text/tokenizer.h>

namespace shardgrad::text {

/// 256 ids, each the byte of its number.
std::shared_ptr<const Tokenizer> byte_tokenizer();

/// From the text of a tokenizer.json. `begins` and `ends` are the names of the tokens of a text's begin and end; empty:
/// what the file itself says, or nothing. Throws as parse_bpe.
std::shared_ptr<const Tokenizer> bpe_tokenizer(std::string name, std::string json, const std::string& begins = "",
                                               const std::string& ends = "");

}  // namespace shardgrad::text
