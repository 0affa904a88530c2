#include <shardgrad/train/checkpoint/finite.h>

#include <algorithm>

#include <shardgrad/core/error.h>

namespace shardgrad::train {
namespace {

// Whether all bits of `exponent` are set: that is NaN or an infinity in each of the formats.
template <class Bits> std::optional<int64_t> find(const Tensor& values, Bits exponent) {
  constexpr int64_t kBlock = 1024;  // looked through without a branch
  const auto* bits = static_cast<const Bits*>(values.in().data);
  auto is_bad = [&](int64_t i) { return (bits[i] & exponent) == exponent; };
  for (int64_t begin = 0, count = values.numel(); begin < count; begin += kBlock) {
    int64_t end = std::min(begin + kBlock, count);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) found |= Bits(is_bad(i));
    for (int64_t i = begin; found && i < end; ++i)
      if (is_bad(i)) return i;
  }
  return {};
}

}  // namespace

std::optional<int64_t> first_not_finite(const Tensor& values) {
  switch (values.dtype()) {
    case DType::f64:
      return find<uint64_t>(values, 0x7FF0'0000'0000'0000);
    case DType::f32:
      return find<uint32_t>(values, 0x7F80'0000);
    case DType::bf16:
      return find<uint16_t>(values, 0x7F80);
    case DType::f16:
      return find<uint16_t>(values, 0x7C00);
    default:
      return {};
  }
}

}  // namespace shardgrad::train
