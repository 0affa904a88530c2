#pragma once
// How a model is sharded. Strategies are lifetimes of the same buffers, never different arithmetic: a strategy changes
// memory and traffic, not the numbers.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/nn/module.h>

namespace shardgrad::fsdp {

/// W ranks, P padded parameter elements.
///
///     strategy   full parameters live          gradients           optimizer     elements sent per rank and step
///     ddp        always                        reduced to all      replicated    2 P (W-1)/W
///     zero2      forward to end of backward    reduced to shards   sharded       2 P (W-1)/W
///     zero3      while their unit computes     reduced to shards   sharded       at most 3 P (W-1)/W
enum class Strategy : uint8_t { ddp, zero2, zero3 };
const char* name_of(Strategy strategy);
/// Accepts the names above and those of other systems: no_shard, shard_grad_op, fsdp, full_shard.
/// Throws Error(input) listing them.
Strategy parse_strategy(std::string_view name);

/// Decides for a submodule (never the root, which is always a unit) whether it becomes a unit of its own. `numel`
/// counts the parameters below it that no deeper unit has taken.
using WrapPolicy = std::function<bool(const nn::Module& module, int64_t numel)>;
/// Units of at least `min_numel` parameters, built from the leaves up.
WrapPolicy wrap_by_size(int64_t min_numel);
/// One unit for every module of one of the types, e.g. wrap_by_type({"Block"}).
WrapPolicy wrap_by_type(std::vector<std::string> types);

struct Config {
  Strategy strategy = Strategy::zero3;
  /// Units gathered ahead of the one that computes, in forward and in backward.
  int prefetch = 1;
  /// Upper bound for the bytes of units gathered ahead; 0: no bound but `prefetch`.
  int64_t prefetch_bytes = 0;
  /// Which submodules become units; empty: every direct child of the root that has parameters.
  WrapPolicy wrap;
};

}  // namespace shardgrad::fsdp
