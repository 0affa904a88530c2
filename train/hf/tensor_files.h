#pragma once
// The tensors of a Hugging Face folder: those of model.safetensors, or of the files that model.safetensors.index.json
// names.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <shardgrad/train/checkpoint/safetensors.h>

namespace shardgrad::train::hf {

inline constexpr const char *kTensorFile = "model.safetensors", *kIndexFile = "model.safetensors.index.json";

class TensorFiles {
 public:
  /// Throws Error(input), with the path and the reason, where there is neither, a file is missing or damaged, a tensor
  /// is not where the index has it, or one is in two files.
  explicit TensorFiles(const std::string& folder);

  /// By the tensors' bare names (bare_name), where they are. That a file's tensor can be read says its tensors().
  struct Place {
    const SafetensorsFile* file;
    std::string name;  ///< there
  };
  const std::map<std::string, Place>& places() const { return places_; }

 private:
  void open(const std::string& path);
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> places_;
};

}  // namespace shardgrad::train::hf
