#pragma once
// Fashion-MNIST: 60,000 training and 10,000 test pictures of 28 x 28 grey values in ten classes, as four gzip files in
// IDX format. Debian package dataset-fashion-mnist.

#include <string>

#include <shardgrad/train/data/dataset.h>

namespace shardgrad::data {

/// One IDX file of bytes (http://yann.lecun.com/exdb/mnist), gzip or plain.
struct IdxFile {
  std::string path;
  std::vector<int64_t> dims;
  Tensor values;  ///< u8, of shape dims
};
/// Reads a file whose header must announce `ndim` dimensions. Throws Error(input) naming the file, what was expected
/// and what to do, when it is missing, truncated, corrupt, or of another format.
IdxFile read_idx(const std::string& path, int ndim);

class FashionMnist : public Dataset {
 public:
  enum class Split { train, test };
  static constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";
  static constexpr int64_t kClasses = 10, kPixels = 28 * 28;
  /// The data set's own training statistics, used to normalise both splits.
  static constexpr float kMean = 0.2860f, kStd = 0.3530f;

  /// Reads a split from the folder with the four files. Throws Error(input), see read_idx; also when pictures and
  /// labels do not match or a label is not in [0, 10).
  FashionMnist(const std::string& folder, Split split);
  int64_t size() const override { return images_.size(0); }
  /// Pictures, normalised, and labels.
  std::vector<Field> fields() const override { return known_fields(); }
  /// Before it is read.
  static std::vector<Field> known_fields() { return {{{kPixels}, DType::f32}, {{}, DType::i64, kClasses}}; }
  static Outline known_outline() { return {known_fields(), 60'000, 10'000}; }
  const Standardisation& input_transform() const override;
  void read(std::span<const int64_t> indices, std::span<void* const> to) const override;
  uint64_t fingerprint() const override;

 private:
  Tensor images_;  ///< u8 (N, 784)
  Tensor labels_;  ///< u8 (N)
};

}  // namespace shardgrad::data
