#pragma once
// What modules, sharding and optimizers know in common about a parameter.

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include <shardgrad/core/tensor.h>

namespace shardgrad::Category {
inline constexpr Kind parameter_shard = named<"parameter_shard">;  ///< trained values; of a plain model, all of them
}

namespace shardgrad {

/// Which indices along one dimension a parameter holds, where it is a part of a larger one: [begin, begin + its own
/// extent there) of `extent`. Two ranks that split a weight (6, 4) by columns hold (6, 2), with {1, 0, 4} and {1, 2,
/// 4}.
struct Part {
  int dim = 0;
  int64_t begin = 0;
  int64_t extent = 0;  ///< of the whole; 0: the parameter is whole
};

/// A trainable tensor and the name it goes by in state dicts, rules and messages.
struct NamedParameter {
  std::string name;
  Tensor tensor;
  Part part = {};  ///< what `tensor` holds of a larger parameter

  /// Name and tensor, for `auto& [name, tensor]`.
  template <size_t i> auto& get() {
    if constexpr (i == 0)
      return name;
    else
      return tensor;
  }
  template <size_t i> const auto& get() const { return const_cast<NamedParameter*>(this)->get<i>(); }
};
/// For autograd/traverse.h.
inline auto tensors_of(NamedParameter& p) { return std::tie(p.tensor); }
inline auto tensors_of(const NamedParameter& p) { return std::tie(p.tensor); }

/// Elements of one parameter that this rank's optimizer updates: the whole of it, or the part inside a shard.
/// `values` and `grad` have the same number of elements. The first `count` are the parameter's elements from `begin`;
/// the rest is padding that belongs to nobody, holds zeros, and may be updated along so that neighbours in memory are
/// updated by one kernel. A rank whose shard is all padding has a range with count 0.
struct LocalRange {
  Tensor values;
  Tensor grad;        ///< undefined, or not in memory, when this step left no gradient
  int64_t begin = 0;  ///< index within the parameter of the first element
  int64_t count = 0;
  Tensor copy = {};  ///< undefined, or what holds the values in another dtype, and is to be written along with them
};

}  // namespace shardgrad

template <> struct std::tuple_size<shardgrad::NamedParameter> : std::integral_constant<size_t, 2> {};
template <> struct std::tuple_element<0, shardgrad::NamedParameter> { using type = std::string; };
template <> struct std::tuple_element<1, shardgrad::NamedParameter> { using type = shardgrad::Tensor; };
