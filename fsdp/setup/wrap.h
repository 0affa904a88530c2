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

#include <memory>
#include <set>

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
void choose_unit(const std::shared_ptr<nn::Module>& module);
}

/// `module`, which inside EnableWrap becomes a unit of its own wherever this rank shards it: beside those that
/// Config::wrap chooses, and in the place of the default ones. Throws Error(input) there for a module that has no
/// forward, such as a ModuleList: nothing would gather it.
template <class M> nn::Child<M> wrap(nn::Child<M> module) {
  detail::choose_unit(module.shared());
  return module;
}

/// This rank's modules that wrap has chosen and that still exist.
std::set<const nn::Module*> wrapped_modules();

/// What Config::wrap is where it is empty.
WrapPolicy wrap_children_of(nn::Module& root);

}  // namespace shardgrad::fsdp
