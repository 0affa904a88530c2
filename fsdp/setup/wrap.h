#pragma once
// Units that are chosen where a model makes its layers, in the words of FairScale and Lightning:
//
//     struct Net : nn::Module {
//       nn::Child<Block> big = fsdp::wrap(child<Block>("big")), small = child<Block>("small");
//       …
//     };
//     auto make = [] { fsdp::EnableWrap scope; return nn::make<Net>(); };
//     auto sharded = fsdp::fully_shard(*make(), world);       // units: big, and the rest
//
// Outside of the scope wrap gives its module back, and that is all: a model is written with it once and for all.

#include <map>
#include <memory>
#include <optional>

#include <shardgrad/core/thread_setting.h>
#include <shardgrad/fsdp/setup/config.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::fsdp {

/// In this scope of the calling thread, wrap chooses; a scope with `on` false inside another one: it does not.
class EnableWrap {
 public:
  explicit EnableWrap(bool on = true);

 private:
  ThreadSetting<bool>::Scope scope_;
};

namespace detail {
enum class When : bool { enabled, always };
void choose_unit(const std::shared_ptr<nn::Module>& module, const std::optional<Config>& own, When when);
}  // namespace detail

/// `module`, which inside EnableWrap becomes a unit of its own wherever this rank shards it: beside those that
/// Config::wrap chooses, and in the place of the default ones. Throws Error(input) there for a module that has no
/// forward, such as a ModuleList: nothing would gather it.
template <class M> nn::Child<M> wrap(nn::Child<M> module) {
  detail::choose_unit(module.shared(), {}, detail::When::enabled);
  return module;
}
/// The same with options of the unit's own: whether it is released after forward (zero3) or not (zero2) and what each
/// rank keeps of it then (reshard_after_forward), where its shard and gradients live, and its dtypes. Where the model's
/// strategy keeps full parameters (ddp, zero1) only the dtypes count. All other options are the model's. Throws
/// Error(input) for another strategy.
template <class M> nn::Child<M> wrap(nn::Child<M> module, const Config& own) {
  detail::choose_unit(module.shared(), own, detail::When::enabled);
  return module;
}

using ChosenUnits = std::map<const nn::Module*, std::optional<Config>>;
/// This rank's modules that wrap has chosen and that still exist, each with options of its own if it has some.
ChosenUnits wrapped_units();

/// What Config::wrap is where it is empty.
WrapPolicy wrap_children_of(nn::Module& root);

}  // namespace shardgrad::fsdp
