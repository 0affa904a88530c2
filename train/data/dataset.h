#pragma once
// Where samples come from. A dataset is a numbered list of samples; a sample has one value per field (input, target,
// …).

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad::Category {
inline constexpr Kind data = named<"data">;  ///< samples and what is made of them
}

namespace shardgrad::data {

/// What a field is for one sample: fetch gives (rows, shape…) of dtype.
struct Field {
  Shape shape;
  DType dtype = DType::f32;
  bool operator==(const Field&) const = default;
};

/// How raw inputs (field 0) became the inputs here: x' = (x - mean) / scale, with a number for each column, or one for
/// all; empty: unchanged.
struct Standardisation {
  std::vector<double> mean, scale;
  bool operator==(const Standardisation&) const = default;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// One for each tensor of fetch.
  virtual std::vector<Field> fields() const = 0;
  /// The samples at `indices`, stacked: one tensor per field on the cpu, with indices.size() rows (which may be 0).
  /// Throws Error(input) for an index that is not in [0, size()).
  virtual std::vector<Tensor> fetch(std::span<const int64_t> indices) const = 0;
  /// A number that differs where the samples do; ranks compare it before training.
  virtual uint64_t fingerprint() const = 0;
  virtual const Standardisation& input_transform() const;

 protected:
  /// Refuses an index out of range, naming the dataset.
  void check(const char* name, std::span<const int64_t> indices) const;
};

/// The two parts of a data set.
struct Splits {
  std::shared_ptr<Dataset> train, test;
};

/// Samples that are the rows of tensors in memory.
class TensorDataset : public Dataset {
 public:
  /// Every field has the same size(0). Throws Error(input) when they differ or one is not on the cpu.
  explicit TensorDataset(std::vector<Tensor> fields);
  int64_t size() const override { return fields_[0].size(0); }
  std::vector<Field> fields() const override;
  std::vector<Tensor> fetch(std::span<const int64_t> indices) const override;
  uint64_t fingerprint() const override;

 private:
  std::vector<Tensor> fields_;
};

}  // namespace shardgrad::data
