#pragma once
// Finds the tensors inside the arguments and results of a function, whatever their types: a Tensor; optional, vector,
// array, pair, tuple, map and other ranges of them; structs with up to eight public members and no constructor.
// Any other type that might hide a tensor does not compile: say where its tensors are with a function beside it,
//
//     struct Batch { Batch(…); Tensor tokens, mask; int epoch; };
//     inline auto tensors_of(Batch& batch) { return std::tie(batch.tokens, batch.mask); }
//
// or pass a pointer, whose target is left alone.

#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace detail {

// Counts the members of an aggregate: how many values of any type can initialise it.
struct AnyValue {
  template <class T> operator T() const;
};
template <class T, class... Values> consteval size_t field_count() {
  if constexpr (requires { T{Values{}..., AnyValue{}}; })
    return field_count<T, Values..., AnyValue>();
  else
    return sizeof...(Values);
}

template <class T> auto fields_of(T& value) {
  constexpr size_t count = field_count<T>();
  static_assert(count <= 8, "a struct of more than 8 members: give it a tensors_of function (see autograd/traverse.h)");
  if constexpr (count == 1) {
    auto& [a] = value;
    return std::tie(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return std::tie(a, b, c, d, e, f, g, h);
  } else {
    return std::tie();
  }
}

template <class T>
concept Listed = requires(T& value) {
  tensors_of(value);
};
template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};
template <class T> inline constexpr bool is_optional = false;
template <class T> inline constexpr bool is_optional<std::optional<T>> = true;
template <class T> inline constexpr bool never = false;

/// The parts of a value to look into, as a tuple of references.
template <class T> auto parts_of(T& value) {
  if constexpr (Listed<T>)
    return tensors_of(value);
  else if constexpr (TupleLike<T>)
    return std::apply([](auto&... parts) { return std::tie(parts...); }, value);
  else
    return fields_of(value);
}

template <class T> consteval bool can_hold_tensors();
template <class... Parts> consteval bool any_holds(std::type_identity<std::tuple<Parts...>>) {
  return (can_hold_tensors<std::remove_cvref_t<Parts>>() || ...);
}
template <class T> consteval bool can_hold_tensors() {
  if constexpr (std::is_same_v<T, Tensor>)
    return true;
  else if constexpr (Listed<T>)
    return true;
  else if constexpr (is_optional<T>)
    return can_hold_tensors<typename T::value_type>();
  else if constexpr (std::ranges::range<T&>)
    return can_hold_tensors<std::ranges::range_value_t<T&>>();
  else if constexpr (std::is_trivially_copyable_v<T>)
    return false;  // a Tensor member would forbid it
  else if constexpr (TupleLike<T> || std::is_aggregate_v<T>)
    return any_holds(std::type_identity<decltype(parts_of(std::declval<T&>()))>());
  else
    static_assert(never<T>, "cannot see whether this type holds tensors: see the note in autograd/traverse.h");
}

}  // namespace detail

/// True when values of type T may hold tensors. Does not compile for a type that cannot be looked into.
template <class T> inline constexpr bool holds_tensors = detail::can_hold_tensors<std::remove_cvref_t<T>>();

/// Calls visit(tensor) for every tensor inside `value`, undefined ones too, in a fixed order.
template <class T, class Visit> void for_each_tensor(T& value, const Visit& visit) {
  using Value = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Value, Tensor>)
    visit(value);
  else if constexpr (!holds_tensors<Value>)
    return;
  else if constexpr (detail::is_optional<Value>) {
    if (value) for_each_tensor(*value, visit);
  } else if constexpr (!detail::Listed<Value> && std::ranges::range<Value&>) {
    for (auto& element : value) for_each_tensor(element, visit);
  } else {
    std::apply([&](auto&... parts) { (for_each_tensor(parts, visit), ...); }, detail::parts_of(value));
  }
}

/// The defined tensors inside `value`.
template <class T> std::vector<Tensor> tensors_in(T& value) {
  std::vector<Tensor> found;
  for_each_tensor(value, [&](const Tensor& tensor) {
    if (tensor.defined()) found.push_back(tensor);
  });
  return found;
}

/// Puts `replacements` where tensors_in found the defined tensors of `value`; constant ones stay.
template <class T> void replace_tensors(T& value, const std::vector<Tensor>& replacements) {
  size_t i = 0;
  for_each_tensor(value, [&](auto& tensor) {
    if (!tensor.defined()) return;
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(tensor)>>) tensor = replacements[i];
    ++i;
  });
}

}  // namespace shardgrad
