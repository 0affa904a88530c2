#pragma once
// Words of FairScale and Tango: how a model is wrapped, in options that both have (docs/coming-from.md has the rest).
//
//     fsdp::FSDPConfig options{.move_params_to_cpu = true};
//     auto model = fsdp::with_wrapped_modules(nn::make<Net>(), {R"(blocks\.[0-9]+)", "head"}, options, true);
//     auto sharded = fsdp::fully_shard(*model, world, options.as_kwargs());

#include <optional>
#include <string>
#include <vector>

#include <shardgrad/fsdp/setup/wrap.h>

namespace shardgrad::fsdp {

/// Four options of FairScale's FullyShardedDataParallel, with its names and defaults.
struct FSDPConfig {
  /// zero3; false: zero2, whose full parameters stay from forward to backward.
  bool reshard_after_forward = true;
  bool move_params_to_cpu = false;
  /// Unset: as move_params_to_cpu. The two may differ.
  std::optional<bool> move_grads_to_cpu = {};
  /// Parameters are gathered and computed in f16, gradients are sent in f32. Needs a grad scaler.
  bool mixed_precision = false;

  /// What fully_shard takes.
  Config as_kwargs() const;
  /// `module` as a unit of its own with these options, in whatever model this rank shards it. Nothing else: where
  /// nothing is sharded, it is the module. Throws Error(input) for one that has no forward or is wrapped already.
  template <class M> nn::Child<M> wrap(nn::Child<M> module) const {
    detail::choose_unit(module.shared(), as_kwargs(), detail::When::always);
    return module;
  }
};

/// Wraps the modules of `model`, all of whose name below it is matched by one of the regular expressions: as units with
/// the options `fsdp_config`, if those are given, and, asked for by `activation_checkpointing`, as regions that
/// backward computes again (nn/recompute.h). Of a module and one inside it the inner one takes its parameters first;
/// what a region contains is part of it. Throws Error(input), having changed nothing, listing expressions that match no
/// module and the modules that there are.
void with_wrapped_modules(nn::Module& model, const std::vector<std::string>& modules_to_wrap,
                          const std::optional<FSDPConfig>& fsdp_config = {}, bool activation_checkpointing = false);
template <class M>
nn::Child<M> with_wrapped_modules(nn::Child<M> model, const std::vector<std::string>& modules_to_wrap,
                                  const std::optional<FSDPConfig>& fsdp_config = {},
                                  bool activation_checkpointing = false) {
  with_wrapped_modules(*model, modules_to_wrap, fsdp_config, activation_checkpointing);
  return model;
}

}  // namespace shardgrad::fsdp
