#pragma once
// A model's values on disk, by the model's own names, of which any part can be read. A safetensors file is one, a
// Hugging Face folder (train/hf/folder_weights.h) another.

#include <string>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/module.h>
#include <shardgrad/train/checkpoint/safetensors.h>

namespace shardgrad::train {

class Weights {
 public:
  Weights() = default;
  Weights(const Weights&) = delete;
  virtual ~Weights() = default;
  /// The file or folder.
  virtual const std::string& path() const = 0;
  /// What there is for a model with tensors `wanted`.
  virtual StateSpecs specs(const StateSpecs& wanted) const = 0;
  /// What is there and cannot be read, by name, and why.
  virtual const SafetensorsFile::Texts& unreadable() const = 0;
  /// Elements of tensor `name` from element `first` on, as many as `values` (one dimension, on the cpu) has, converted
  /// to its dtype. Of a name that specs() has; in their order they are read fastest.
  virtual void read(const std::string& name, int64_t first, const Tensor& values) = 0;
  /// Which tensor of which file has an element of tensor `name`, for a sentence: "'FILE': tensor 'NAME IN IT'".
  virtual std::string place(const std::string& name, int64_t element) const = 0;
};

/// The tensors of a safetensors file, under their names there.
class FileWeights final : public Weights {
 public:
  explicit FileWeights(const std::string& path) : file_(path, SafetensorsFile::Access::read) {}
  const std::string& path() const override { return file_.path(); }
  StateSpecs specs(const StateSpecs& wanted) const override;
  const SafetensorsFile::Texts& unreadable() const override { return file_.unreadable(); }
  void read(const std::string& name, int64_t first, const Tensor& values) override;
  std::string place(const std::string& name, int64_t element) const override;
  const SafetensorsFile& file() const { return file_; }

 private:
  SafetensorsFile file_;
};

/// Elements of a file's tensor into `values`, converted where the file has another dtype.
void read_converted(const SafetensorsFile& file, const std::string& name, int64_t first, const Tensor& values);

/// Throws Error(input) listing what of `weights` does not fit tensors `expected`. With `any_float`, of a floating
/// tensor any floating dtype fits.
void check_fits(const Weights& weights, const StateSpecs& expected, bool any_float = false);

/// Reads a part of a parameter. Throws Error(input), naming the file and the tensor, for a number that is not finite: a
/// training that begins with it fails in its first step.
void read_finite(Weights& weights, const std::string& name, int64_t first, const Tensor& values);

/// Fills parameters and buffers by Weights::read, or parameters by read_finite. Each rank reads what it owns, a piece
/// at a time. A collective.
void fill_model(nn::Module& model, fsdp::Sharded& sharded, Weights& weights, bool finite = false);

/// A model that was not called yet gets its buffers now; parameters have had their values since they were sharded.
std::vector<NamedParameter> buffers_of(nn::Module& model);

}  // namespace shardgrad::train
