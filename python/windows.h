#pragma once
// How a Python program says the sizes of windows: one number, or one for each dimension of an image.

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
/// The number for both dimensions. Throws Error(input) where they differ.
inline int64_t side(const char* layer, const Extent& given) {
  Size2d both = size_of(layer, given);
  SG_CHECK(both.down == both.across, layer, ": windows are the same along both dimensions here");
  return both.down;
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

inline ConvOptions conv_options(const char* layer, Size2d kernel, const Extent& stride, const Padding& padding,
                                const Extent& dilation, int64_t groups) {
  Size2d step = size_of(layer, stride), apart = size_of(layer, dilation);
  return {step, padding_of(layer, padding, kernel, step, apart), apart, groups};
}

}  // namespace shardgrad::python
