#pragma once
// A trained model as a Hugging Face folder: config.json, model.safetensors, and the tokenizer's files.

#include <memory>
#include <optional>
#include <string>

#include <shardgrad/train/checkpoint/weights.h>
#include <shardgrad/train/hf/config.h>

namespace shardgrad::train::hf {

/// Where an exported folder's files but the weights come from, and what its tensors are.
struct ExportSource {
  std::shared_ptr<const FileWeights> weights;  ///< the model's parameters
  std::string tokenizer;                       ///< a folder, whose files of a tokenizer are copied; empty: none
  TokenIds tokens = {};
  std::optional<DType> dtype = {};  ///< of all tensors; without: of `began`, or as they are saved
  /// The folder that the weights were at first, if it is still there: where its tensors are of 16 bits and those hold
  /// all that the weights are now, they are written so.
  std::string began = {};
};

struct ExportedDtypes {
  DType written;                         ///< of the first tensor
  std::optional<DType> too_narrow = {};  ///< of `began`, where it does not hold what the weights are
};

/// Makes the folder `to`. One tensor is in memory at a time. Throws Error(input), with nothing left behind, where `to`
/// is there and not empty or cannot be written, and where the weights are not those of the model, are not finite, or
/// are too large for the dtype.
ExportedDtypes export_folder(const ModelOptions& options, const ExportSource& source, const std::string& to);

}  // namespace shardgrad::train::hf
