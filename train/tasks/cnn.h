#pragma once
// A convolutional network for small pictures.

#include <vector>

#include <shardgrad/nn/convolution.h>
#include <shardgrad/nn/dropout.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/train/options.h>

namespace shardgrad::train {

struct CnnOptions {
  std::vector<int64_t> image{1, 28, 28}, channels{16, 32};
  int64_t kernel = 3, hidden = 128, classes = 10;
  double dropout = 0;
  void list(OptionList& options);
};

/// For each of `channels` a convolution "conv0", "conv1", … that keeps height and width, relu, and the largest of each
/// 2 × 2; then linear layers "hidden" and "out". A sample is a picture, or its numbers in one row.
class Cnn : public nn::Module {
 public:
  /// Throws Error(input) for an even kernel and pictures too small to be halved so often.
  explicit Cnn(const CnnOptions& options);
  Tensor forward(const Tensor& x);

 private:
  std::vector<int64_t> image_;
  std::vector<nn::Child<nn::Conv2d>> convolutions_;
  nn::Child<nn::Linear> hidden_, out_;
  nn::Child<nn::Dropout> dropout_;
};

}  // namespace shardgrad::train
