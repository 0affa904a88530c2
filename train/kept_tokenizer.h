#pragma once
// The tokenizer that a run was trained with, kept in its folder: runs/NAME/tokenizer.json, and tokenizer_config.json,
// where it has tokens that begin or end a text. Whoever reads what the model says needs this one, whatever has become
// of the file that data.tokenizer named.

#include <memory>
#include <string>

#include <shardgrad/train/text/tokenizer.h>

namespace shardgrad::train {

using text::kTokenizerFile;

/// Of one rank, before the first step. Throws Error(input) for a run that goes on from a checkpoint and has another
/// one.
void keep_tokenizer(const std::string& run, const text::Tokenizer& tokenizer);

/// Of the run in this folder, or of one of its checkpoints. Throws Error(input) where none is kept.
std::shared_ptr<const text::Tokenizer> kept_tokenizer(const std::string& run);

/// A short text that differs where tokenizers do.
std::string mark_of(const text::Tokenizer& tokenizer);

}  // namespace shardgrad::train
