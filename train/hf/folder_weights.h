#pragma once
// A Hugging Face folder as weights of the model that its config.json tells of.

#include <shardgrad/train/checkpoint/weights.h>
#include <shardgrad/train/hf/layout.h>
#include <shardgrad/train/hf/tensor_files.h>

namespace shardgrad::train::hf {

class FolderWeights final : public Weights {
 public:
  /// Throws Error(input) as read_model_config and TensorFiles do, and for tensors that are missing, not expected, of
  /// another shape, or cannot be read; for a lm_head.weight that is another table where config.json ties it, of which
  /// one of the two names is enough. Tensors that nobody needs may have any dtype.
  explicit FolderWeights(const std::string& folder);

  const std::string& path() const override { return folder_; }
  const ModelOptions& options() const { return options_; }
  /// A table with more rows in the model than here is taken for padded.
  StateSpecs specs(const StateSpecs& wanted) const override;
  /// None: such as is needed was refused.
  const SafetensorsFile::Texts& unreadable() const override { return unreadable_; }
  /// Rows of padding are 0. Keeps the last transposed tensor in memory.
  void read(const std::string& name, int64_t first, const Tensor& values) override;
  std::string place(const std::string& name, int64_t element) const override;

 private:
  void check_tied_head() const;
  void check();
  bool is_tied() const { return !layout_.contains(kHead); }
  const TensorFiles::Place* find(const Part& part) const;
  const TensorFiles::Place& place_of(const Part& part) const;
  DType dtype_of(const Part& part) const;
  void read_part(const Part& part, int64_t first, const Tensor& values);
  const Tensor& whole(const Part& part);

  std::string folder_;
  ModelOptions options_;
  Layout layout_;
  TensorFiles files_;
  SafetensorsFile::Texts unreadable_;
  std::string whole_name_;  // of the last transposed tensor
  Tensor whole_;
};

}  // namespace shardgrad::train::hf
