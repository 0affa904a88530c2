#pragma once
// Where samples come from. A dataset is a numbered list of samples; a sample has one value per field (input, target,
// …).
//
//     class Squares : public data::Dataset {
//      public:
//       int64_t size() const override { return 1000; }
//       std::vector<data::Field> fields() const override { return {{{1}, DType::f32}, {{1}, DType::f32}}; }
//       void read(std::span<const int64_t> indices, std::span<void* const> to) const override {
//         for (size_t row = 0; row < indices.size(); ++row) {
//           float x = float(indices[row]) / 1000;
//           static_cast<float*>(to[0])[row] = x;
//           static_cast<float*>(to[1])[row] = x * x;
//         }
//       }
//       uint64_t fingerprint() const override { return 1; }  // the samples never change
//     };

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad::text {
class Tokenizer;
}

namespace shardgrad::Category {
inline constexpr Kind data = named<"data">;  ///< samples and what is made of them
}

namespace shardgrad::data {

/// What a field is for one sample: fetch gives (rows, shape…) of dtype.
struct Field {
  Shape shape;
  DType dtype = DType::f32;
  int64_t classes = 0;     ///< of labels: each is in [0, classes); 0: unknown
  double label_bytes = 0;  ///< of labels that are tokens: of a text, that one of the test stands for; 0: unknown

  /// (rows, shape…)
  Shape rows(int64_t rows) const;
  bool operator==(const Field&) const = default;
};

/// What is known of a data set before it is read.
struct Outline {
  std::vector<Field> fields;
  int64_t train = 0, test = 0;  ///< samples to train on and to test on; 0: unknown
  bool operator==(const Outline&) const = default;
};

/// A label of a text that counts in no loss and no score, as PyTorch's ignore_index.
inline constexpr int64_t kIgnored = -100;

/// No label is as large: so many classes can be counted.
inline constexpr int64_t kMostLabels = std::numeric_limits<int64_t>::max();

/// How raw inputs (field 0) became the inputs here: x' = (x - mean) / scale, with a number for each column, or one for
/// all; empty: unchanged.
struct Standardisation {
  std::vector<double> mean, scale;

  double apply(double raw, size_t column) const {
    size_t i = mean.size() == 1 ? 0 : column;
    return mean.empty() ? raw : (raw - mean[i]) / scale[i];
  }
  double undo(double value, size_t column) const {
    size_t i = mean.size() == 1 ? 0 : column;
    return mean.empty() ? value : value * scale[i] + mean[i];
  }
  bool operator==(const Standardisation&) const = default;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// One for each tensor of fetch.
  virtual std::vector<Field> fields() const = 0;
  /// Writes the samples at `indices`, each in [0, size()), one after the other to where each field is wanted. Makes no
  /// tensors: a loader calls it from a thread of its own, which has no context.
  virtual void read(std::span<const int64_t> indices, std::span<void* const> to) const = 0;
  /// A number that differs where the samples do; ranks compare it before training.
  virtual uint64_t fingerprint() const = 0;
  virtual const Standardisation& input_transform() const;
  /// How many of the labels (field 1, i64) of these samples are kIgnored. By default none is.
  virtual int64_t ignored_labels(std::span<const int64_t> indices) const;

  /// The samples at `indices`, stacked: one tensor per field on the cpu, with indices.size() rows (which may be 0).
  /// Throws Error(input) for an index that is not in [0, size()).
  std::vector<Tensor> fetch(std::span<const int64_t> indices) const;
  /// Room for the fields of `rows` samples, on the cpu, where copies to `device` are fastest from.
  std::vector<Tensor> room_for(int64_t rows, Device device = kCpu) const;
};

/// Where the fields of a batch are written.
std::vector<void*> places_of(std::span<const Tensor> fields);

/// The two parts of a data set.
struct Splits {
  std::shared_ptr<Dataset> train, test;
  int64_t classes = 0;                     ///< labels are in [0, classes), in both; 0: unknown, or no labels
  std::vector<std::string> class_names{};  ///< of labels that were texts; or empty
  Standardisation target{};                ///< how raw targets became field 1; empty: unchanged
  std::shared_ptr<const text::Tokenizer> tokenizer{};  ///< of texts; null: unknown
  double bytes_per_token = 0;  ///< of a text, that a target of the test stands for on average; 0: unknown

  /// Of both, with the classes and label_bytes of field 1.
  std::vector<Field> fields() const;
  Outline outline() const { return {fields(), train->size(), test->size()}; }
};

/// Samples that are the rows of tensors in memory.
class TensorDataset : public Dataset {
 public:
  /// Every field has the same size(0). Throws Error(input) when they differ or one is not on the cpu.
  explicit TensorDataset(std::vector<Tensor> fields, Standardisation inputs = {});
  int64_t size() const override { return fields_[0].size(0); }
  std::vector<Field> fields() const override;
  void read(std::span<const int64_t> indices, std::span<void* const> to) const override;
  uint64_t fingerprint() const override;
  const Standardisation& input_transform() const override { return inputs_; }
  int64_t ignored_labels(std::span<const int64_t> indices) const override;

 private:
  std::vector<Tensor> fields_;
  Standardisation inputs_;
};

}  // namespace shardgrad::data
