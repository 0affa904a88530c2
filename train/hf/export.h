#pragma once
// A trained model as a Hugging Face folder: config.json, model.safetensors, and the tokenizer's files.

#include <memory>
#include <string>

#include <shardgrad/train/checkpoint/weights.h>
#include <shardgrad/train/hf/config.h>

namespace shardgrad::train::hf {

/// Where an exported folder's files but the weights come from.
struct ExportSource {
  std::shared_ptr<const FileWeights> weights;  ///< the model's parameters
  std::string tokenizer;                       ///< a folder, whose files of a tokenizer are copied; empty: none
  TokenIds tokens = {};
};

/// Makes the folder `to`, in the dtypes that the weights have. One tensor is in memory at a time. Throws Error(input),
/// with nothing left behind, where `to` is there and not empty or cannot be written, and where the weights are not
/// those of the model.
void export_folder(const ModelOptions& options, const ExportSource& source, const std::string& to);

}  // namespace shardgrad::train::hf
