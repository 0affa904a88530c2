#include <shardgrad/train/data/fashion_mnist.h>
#include <zlib.h>

#include <array>

#include <shardgrad/core/context.h>

namespace shardgrad::data {

FashionMnist::FashionMnist(const std::string& folder, Split split) {
  std::string stem = folder + (split == Split::train ? "/train" : "/t10k");
  IdxFile images = read_idx(stem + "-images-idx3-ubyte.gz", 3);
  IdxFile labels = read_idx(stem + "-labels-idx1-ubyte.gz", 1);
  SG_CHECK(images.dims[1] * images.dims[2] == kPixels, "'", images.path, "' holds pictures of ", images.dims[1], " x ",
           images.dims[2], ", expected 28 x 28");
  SG_CHECK(images.dims[0] == labels.dims[0], "'", images.path, "' holds ", images.dims[0], " pictures, but '",
           labels.path, "' holds ", labels.dims[0], " labels; both must come from one data set");
  const auto* label = labels.values.data<uint8_t>();
  for (int64_t i = 0; i < labels.dims[0]; ++i)
    SG_CHECK(label[i] < kClasses, "'", labels.path, "': label ", i, " is ", int(label[i]), ", expected 0 to ",
             kClasses - 1);
  images_ = images.values.view({images.dims[0], kPixels});
  labels_ = labels.values;
}

// Of grey values from 0 to 255.
const Standardisation& FashionMnist::input_transform() const {
  static const Standardisation greys{{255 * double(kMean)}, {255 * double(kStd)}};
  return greys;
}

void FashionMnist::read(std::span<const int64_t> indices, std::span<void* const> to) const {
  static constexpr auto normalised = [] {
    std::array<float, 256> table{};
    for (int grey = 0; grey < 256; ++grey) table[size_t(grey)] = (float(grey) / 255 - kMean) / kStd;
    return table;
  }();
  const auto* images = images_.data<uint8_t>();
  const auto* labels = labels_.data<uint8_t>();
  auto* pixels = static_cast<float*>(to[0]);
  auto* classes = static_cast<int64_t*>(to[1]);
  for (size_t i = 0; i < indices.size(); ++i) {
    const uint8_t* image = images + indices[i] * kPixels;
    for (int64_t p = 0; p < kPixels; ++p) *pixels++ = normalised[image[p]];
    classes[i] = labels[indices[i]];
  }
}

uint64_t FashionMnist::fingerprint() const {
  uLong sum = crc32_z(0, images_.data<uint8_t>(), images_.bytes());
  return crc32_z(sum, labels_.data<uint8_t>(), labels_.bytes());
}

}  // namespace shardgrad::data
