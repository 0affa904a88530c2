#include <shardgrad/train/tasks/cnn.h>

#include <string>

namespace shardgrad::train {

void CnnOptions::list(OptionList& options) {
  options.add("image", image, "channels, height and width of a picture",
              {.low = 1, .high = 1 << 16, .least_length = 3});
  options.add("channels", channels, "of each convolution, after which height and width are halved",
              {.low = 1, .high = 1 << 16, .least_length = 1});
  options.add("kernel", kernel, "height and width of a convolution's window; odd", {.low = 1, .high = 99});
  options.add("hidden", hidden, "width of the linear layer between pictures and classes", {.low = 1, .high = 1 << 30});
  options.add("classes", classes, "what the last layer tells apart", {.low = 1, .high = 1 << 30});
  options.add("dropout", dropout, "probability that a number before the last layer is zeroed in training",
              {.low = 0, .high = 1, .below_high = true});
}

Cnn::Cnn(const CnnOptions& options) : image_(options.image) {
  SG_CHECK(image_.size() == 3, "model cnn: model.image has ", image_.size(),
           " numbers; it is channels, height and width");
  SG_CHECK(options.kernel % 2 == 1, "model cnn: model.kernel = ", options.kernel, " is even; take an odd one");
  int64_t in = image_[0], height = image_[1], width = image_[2];
  for (int64_t out : options.channels) {
    std::string name = "conv" + std::to_string(convolutions_.size());
    convolutions_.push_back(
        child<nn::Conv2d>(name, in, out, options.kernel, ConvOptions{.padding = options.kernel / 2}));
    in = out, height /= 2, width /= 2;
  }
  SG_CHECK(height > 0 && width > 0, "model cnn: pictures of ", image_[1], " x ", image_[2], " cannot be halved ",
           options.channels.size(), " times; give model.channels fewer numbers");
  hidden_ = child<nn::Linear>("hidden", in * height * width, options.hidden, true, Activation::relu);
  dropout_ = child<nn::Dropout>("dropout", options.dropout);
  out_ = child<nn::Linear>("out", options.hidden, options.classes);
}

Tensor Cnn::forward(const Tensor& x) {
  SG_CHECK(x.ndim() >= 1 && (x.size(0) == 0 || x.numel() / x.size(0) == image_[0] * image_[1] * image_[2]),
           "model cnn: samples of shape ", x.shape(), " are no pictures of ", image_[0], " x ", image_[1], " x ",
           image_[2], ", which model.image says");
  Tensor y = reshape(x, {x.size(0), image_[0], image_[1], image_[2]});
  for (const auto& convolution : convolutions_) y = max_pool2d(relu(convolution(y)), 2);
  return out_(dropout_(hidden_(flatten(y, 1))));
}

}  // namespace shardgrad::train
