#pragma once
// Child<M>: a shared handle on a module of type M. Calling it runs pre-hooks, M::forward and hooks. Included by
// module.h.

#include <concepts>
#include <cstdint>
#include <ranges>

#include <shardgrad/autograd/traverse.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {
namespace detail {

// While hooks run, arguments that hold tensors are kept as copies (of handles), so that a hook may replace a tensor
// without touching the caller's variable. Others are passed through.
template <class Arg> using Kept = std::conditional_t<holds_tensors<Arg>, std::remove_cvref_t<Arg>, Arg&&>;

/// How forward receives an argument: a tensor-holding variable of the caller's as const, anything else as it came.
template <class Arg, class Value> decltype(auto) pass(Value& value) {
  if constexpr (!holds_tensors<Arg>)
    return static_cast<Arg&&>(value);
  else if constexpr (std::is_lvalue_reference_v<Arg>)
    return std::as_const(value);
  else
    return std::move(value);
}

/// Whether a call with these arguments can be made again from copies of them.
template <class M, class... Args>
concept Repeatable = (std::is_copy_constructible_v<std::decay_t<Args>> && ...) &&
                     !(std::ranges::view<std::decay_t<Args>> || ...) &&
                     requires(M & module, std::decay_t<Args>... args) {
  module.forward(std::move(args)...);
};

/// A call that runs hooks: tells them that it ended by an exception.
class CallGuard {
 public:
  explicit CallGuard(Module& module);
  ~CallGuard();
  CallGuard(const CallGuard&) = delete;

 private:
  Module& module_;
  uint64_t outer_;
  int exceptions_;
};

/// Throws where a recomputed module was switched between train() and eval().
void check_as_before(const Module& module, bool training);

/// How a module's forward is called by who does not know its type.
using TensorForward = Tensor (*)(Module& module, Tensor& input);

/// What a call runs when there are hooks, for the forward that most modules have: of one tensor, giving one. Compiled
/// once, where other forwards have it compiled for each.
Tensor call_with_hooks(const std::shared_ptr<Module>& module, Tensor input, TensorForward forward);

template <class M, class Arg> Tensor tensor_forward(Module& module, Tensor& input) {
  return static_cast<M&>(module).forward(pass<Arg>(input));
}

/// A call with these arguments has such a forward.
template <class M, class... Args>
concept OfTensor = sizeof...(Args) == 1 && (std::is_same_v<std::remove_cvref_t<Args>, Tensor> && ...) &&
                   requires(M& module, Tensor& input) {
  { (module.forward(pass<Args>(input)), ...) } -> std::same_as<Tensor>;
};

// Its forward hides no other, so naming it is possible only where M has none.
struct NamesForward {
  void forward();
};
template <class M> struct WithForward : M, NamesForward {};
template <class M>
concept HasForward = std::is_final_v<M> || !requires {
  &WithForward<M>::forward;
};

}  // namespace detail

template <class M> class Child {
 public:
  Child() = default;
  explicit Child(std::shared_ptr<M> module) : module_(std::move(module)) {}
  /// A handle on the same module as a base type.
  template <class Derived>
  requires std::is_convertible_v<Derived*, M*> Child(const Child<Derived>& other) : module_(other.shared()) {}

  /// Runs pre-hooks, M::forward(args…) and hooks. The root's first call fills the parameters.
  template <class... Args> auto operator()(Args&&... args) const {
    if (module().direct()) [[likely]]
      return module_->forward(detail::pass<Args>(args)...);
    if constexpr (detail::OfTensor<M, Args...>) {
      constexpr bool stays = (std::is_lvalue_reference_v<Args> && ...);
      using Arg = std::conditional_t<stays, const Tensor&, Tensor>;
      return detail::call_with_hooks(module_, Tensor(std::forward<Args>(args)...), detail::tensor_forward<M, Arg>);
    } else {
      return call_with_hooks(std::forward<Args>(args)...);
    }
  }

  M& module() const {
    if (!module_) [[unlikely]]
      fail("use of an empty module handle; make one with child<M>(…) or nn::make<M>(…)");
    return *module_;
  }
  M* operator->() const { return &module(); }
  M& operator*() const { return module(); }
  explicit operator bool() const { return bool(module_); }
  const std::shared_ptr<M>& shared() const { return module_; }

 private:
  template <class... Args> auto call_with_hooks(Args&&... args) const {
    std::tuple<detail::Kept<Args>...> kept(std::forward<Args>(args)...);
    std::vector<Tensor> inputs = tensors_in(kept);
    detail::CallGuard guard(*module_);
    module_->before_forward(inputs);
    replace_tensors(kept, inputs);
    auto forward = [&](auto&... each) { return run_forward(detail::pass<Args>(each)...); };
    if constexpr (std::is_void_v<decltype(std::apply(forward, kept))>) {
      std::apply(forward, kept);
      std::vector<Tensor> none;
      module_->after_forward(none);
    } else {
      auto result = std::apply(forward, kept);
      std::vector<Tensor> outputs = tensors_in(result);
      module_->after_forward(outputs);
      replace_tensors(result, outputs);
      return result;
    }
  }

  template <class... Args> auto run_forward(Args&&... args) const {
    const std::optional<RecomputeOptions>& options = module_->recompute_options();
    if (!options) return module_->forward(std::forward<Args>(args)...);
    if constexpr (detail::Repeatable<M, Args...>) {
      auto forward = [module = module_, training = module_->training()](auto&&... each) {
        detail::check_as_before(*module, training);
        return module->forward(std::forward<decltype(each)>(each)...);
      };
      return shardgrad::checkpoint(*options, std::move(forward), std::forward<Args>(args)...);
    } else {
      fail("recompute of '", module_->full_name(), "', a ", module_->type_name(),
           ": its forward changes or cannot copy an argument, so it cannot run again; pass a pointer");
    }
  }

  std::shared_ptr<M> module_;
};

/// Makes the root of a model: a module whose parameters have full names and get their values at the first call. Where
/// its class has such a function, M::made_as(module) learns of the type, which it knows nowhere else.
template <class M, class... Args> Child<M> make(Args&&... args) {
  auto module = std::make_shared<M>(std::forward<Args>(args)...);
  module->set_only_holds(!detail::HasForward<M>);
  if constexpr (requires { M::made_as(*module); }) M::made_as(*module);
  module->make_root();
  return Child<M>(std::move(module));
}

template <class M, class... Args> Child<M> Module::child(std::string name, Args&&... args) {
  auto module = std::make_shared<M>(std::forward<Args>(args)...);
  module->set_only_holds(!detail::HasForward<M>);
  add_child(std::move(name), module);
  return Child<M>(std::move(module));
}

/// As its module.
template <class M> std::ostream& operator<<(std::ostream& out, const Child<M>& module) { return out << *module; }

template <class M> Child<M> Module::share(std::string name, const Child<M>& module) {
  add_child(std::move(name), std::shared_ptr<Module>(module.shared()));
  return module;
}

}  // namespace shardgrad::nn
