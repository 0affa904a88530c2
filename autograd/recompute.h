#pragma once
// Recompute: what happens inside a call is not kept for backward but computed again there.
//
//     Tensor y = checkpoint(block, x);                              // instead of block(x)
//     auto [q, k] = checkpoint([&](const Tensor& x, Cache c) { … }, x, cache);
//
// Between forward and backward only the tensors among the arguments are held. Gradients are the same bits: dropout
// draws the same masks, and whoever counts or averages asks recomputing(). See region.h for how it works.

#include <functional>
#include <memory>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <shardgrad/autograd/grad_mode.h>
#include <shardgrad/autograd/region.h>
#include <shardgrad/autograd/traverse.h>

namespace shardgrad {

/// True while backward runs a region again. What must happen once per step (running statistics) is left out then.
bool recomputing();

namespace detail {

/// A copy of `function` can be called with these arguments.
template <class F, class... Args>
concept Repeatable = (std::is_invocable_v<std::decay_t<F>&, Args...>);

/// A call that can be made again: the function and copies of its arguments, less their tensors.
template <class F, class... Args> struct RepeatableCall {
  F function;
  std::tuple<Args...> arguments;

  /// The tensors among the arguments, which are replaced by empty ones here.
  std::vector<Tensor> take_tensors() {
    std::vector<Tensor> tensors = tensors_in(arguments);
    replace_tensors(arguments, std::vector<Tensor>(tensors.size(), empty({0})));
    return tensors;
  }
  void run(const std::vector<Tensor>& tensors) {
    std::tuple<Args...> now = arguments;
    replace_tensors(now, tensors);
    std::apply([&](Args&... each) { std::invoke(function, std::move(each)...); }, now);
  }
};

}  // namespace detail

/// function(args…), run again in backward. The function must do the same every time, which is checked operation by
/// operation; it and copies of the arguments live as long as the graph: let it capture what outlives backward, and pass
/// pointers to what must not be copied. Without grad mode a plain call.
template <class F, class... Args>
requires detail::Repeatable<F, Args...>
auto checkpoint(const RecomputeOptions& options, F&& function, Args&&... args) {
  static_assert(!(std::ranges::view<std::decay_t<Args>> || ...),
                "checkpoint: an argument is a view of tensors it does not own; pass a vector");
  if (!grad_enabled()) return std::invoke(function, std::forward<Args>(args)...);
  using Call = detail::RepeatableCall<std::decay_t<F>, std::decay_t<Args>...>;
  auto call = std::make_shared<Call>(Call{std::forward<F>(function), {args...}});
  auto again = [call](const std::vector<Tensor>& tensors) { call->run(tensors); };
  Ref<Region> region = make_ref<Region>(options, call->take_tensors(), std::move(again));
  Region::Scope scope(*region);
  return std::invoke(call->function, std::forward<Args>(args)...);
}

template <class F, class... Args>
requires detail::Repeatable<F, Args...>
auto checkpoint(F&& function, Args&&... args) {
  return checkpoint(RecomputeOptions(), std::forward<F>(function), std::forward<Args>(args)...);
}

}  // namespace shardgrad
