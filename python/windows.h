#pragma once
// How a Python program says the sizes of windows: one number, or one for each dimension of an image.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <shardgrad/autograd/ops.h>

namespace shardgrad::python {

using Extent = std::variant<int64_t, std::vector<int64_t>>;
using Padding = std::variant<int64_t, std::string, std::vector<int64_t>>;

/// Down and across. Throws Error(input) naming `layer` for a list of any length but one and two.
inline Size2d size_of(const char* layer, const Extent& given) {
  if (auto* one = std::get_if<int64_t>(&given)) return *one;
  const auto& all = std::get<std::vector<int64_t>>(given);
  SG_CHECK(all.size() == 1 || all.size() == 2, layer, ": kernels, strides, paddings and dilations are one number or ",
           "two, down and across, got ", all.size());
  return {all.front(), all.back()};
}
/// Of what has one dimension. Throws Error(input) naming `layer` for a list of any length but one.
inline int64_t length_of(const char* layer, const Extent& given) {
  if (auto* one = std::get_if<int64_t>(&given)) return *one;
  const auto& all = std::get<std::vector<int64_t>>(given);
  SG_CHECK(all.size() == 1, layer, ": kernels, strides, paddings and dilations are one number, got ", all.size());
  return all.front();
}

/// What 'same' pads: as much as keeps the extent.
inline int64_t same_padding(const char* layer, int64_t kernel, int64_t stride, int64_t dilation) {
  SG_CHECK(stride == 1 && dilation * (kernel - 1) % 2 == 0, layer, ": padding 'same' is not possible here; it needs ",
           "stride 1 and an odd kernel, or a dilation that is even");
  return dilation * (kernel - 1) / 2;
}
inline Size2d padding_of(const char* layer, const Padding& given, Size2d kernel, Size2d stride, Size2d dilation) {
  if (auto* one = std::get_if<int64_t>(&given)) return *one;
  if (auto* all = std::get_if<std::vector<int64_t>>(&given)) return size_of(layer, *all);
  const std::string& word = std::get<std::string>(given);
  if (word == "valid") return 0;
  SG_CHECK(word == "same", layer, ": padding '", word, "' is neither 'same' nor 'valid'");
  return {same_padding(layer, kernel.down, stride.down, dilation.down),
          same_padding(layer, kernel.across, stride.across, dilation.across)};
}

inline ConvOptions conv2d_options(const char* layer, Size2d kernel, const Extent& stride, const Padding& padding,
                                  const Extent& dilation, int64_t groups) {
  Size2d step = size_of(layer, stride), apart = size_of(layer, dilation);
  return {step, padding_of(layer, padding, kernel, step, apart), apart, groups};
}
inline ConvOptions conv1d_options(const char* layer, int64_t kernel, const Extent& stride, const Padding& padding,
                                  const Extent& dilation, int64_t groups) {
  int64_t step = length_of(layer, stride), apart = length_of(layer, dilation);
  auto* listed = std::get_if<std::vector<int64_t>>(&padding);
  return {step, listed ? length_of(layer, *listed) : padding_of(layer, padding, kernel, step, apart), apart, groups};
}

/// Windows of pooling. What PyTorch has beside them is refused by name: dilation of any but 1, return_indices,
/// divisor_override.
inline PoolOptions pool_options(const char* layer, const std::optional<Extent>& stride, const Extent& padding,
                                bool ceil_mode, bool count_include_pad) {
  Size2d step = stride ? size_of(layer, *stride) : 0;
  SG_CHECK(!stride || (step.down != 0 && step.across != 0), layer, ": stride 0 is not possible; without one, or with ",
           "None, it is the kernel's size");
  return {step, size_of(layer, padding), ceil_mode, count_include_pad};
}
inline void check_max_pool(const char* layer, const Extent& dilation, bool return_indices) {
  Size2d apart = size_of(layer, dilation);
  SG_CHECK(apart.down == 1 && apart.across == 1, layer, ": dilation=(", apart.down, ", ", apart.across,
           ") is not offered: pooled windows are of neighbours");
  SG_CHECK(!return_indices, layer,
           ": return_indices=True is not offered; x.flatten(2).max(2) has the indices of whole ", "images");
}
inline void check_avg_pool(const char* layer, const std::optional<int64_t>& divisor_override) {
  SG_CHECK(!divisor_override, layer, ": divisor_override is not offered; multiply the result by kernel / divisor");
}

/// The size of adaptive pooling: a number, or two, of which None keeps the image's.
using Places = std::variant<int64_t, std::vector<std::optional<int64_t>>>;
inline Size2d places_of(const char* layer, const Places& given) {
  auto one = [&](std::optional<int64_t> places) {
    SG_CHECK(!places || *places >= 1, layer, ": a size of ", *places, " is not possible");
    return places.value_or(kSameExtent);
  };
  if (auto* both = std::get_if<int64_t>(&given)) return one(*both);
  const auto& all = std::get<std::vector<std::optional<int64_t>>>(given);
  SG_CHECK(all.size() == 2, layer, ": output_size is one number or two, down and across, got ", all.size());
  return {one(all[0]), one(all[1])};
}

}  // namespace shardgrad::python
