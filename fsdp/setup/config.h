#pragma once
// How a model is sharded. Strategies are lifetimes of the same buffers, never different arithmetic: a strategy changes
// memory and traffic, not the numbers, to the bit. Only to rounding in two cases: where NCCL sums in its own order
// (dist/transports/tree_sum.h), and under hybrid in groups that are no power of two (fsdp/setup/mesh.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/fsdp/setup/policies.h>

namespace shardgrad::fsdp {

/// W ranks, P padded parameter elements, P_k of them in units kept from forward to backward, groups of S, R = W/S.
///
///     strategy   full parameters live          full gradients live   optimizer   elements sent per rank and step
///     ddp        always                        to zero_grad          replicated  2 P (W-1)/W
///     zero1      always                        to zero_grad          sharded     2 P (W-1)/W
///     zero2      forward to end of backward    while their unit      sharded     2 P (W-1)/W
///                (always, with keep_params)      is in backward
///     zero3      while their unit computes     the same              sharded     (3 P - P_k)(W-1)/W
///     hybrid     the same                      the same              in groups   (3 P - P_k)(S-1)/S + 2 (P/S)(R-1)/R
///
/// With reshard_after_forward = n zero3 sends 2 P (W-1)/W + (P - P_k)(n-1)/n: what is gathered for backward moves in
/// groups of n.
enum class Strategy : uint8_t { ddp, zero1, zero2, zero3, hybrid };
inline constexpr Strategy kStrategies[] = {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3,
                                           Strategy::hybrid};
const char* name_of(Strategy strategy);
/// Accepts the names above and those of other systems, in any case, with or without '-' and '_': dp, NO_SHARD; OSS;
/// SHARD_GRAD_OP, ShardedDDP, ddp_sharded, ddp_sharded_spawn, both also with _find_unused_parameters_false; FSDP,
/// FULL_SHARD, fsdp_native, ddp_fully_sharded, fairscale; HSDP, HYBRID_SHARD. Throws Error(input) listing them.
Strategy parse_strategy(std::string_view name);
/// All of these names, in lower case.
std::vector<std::string> strategy_names();

struct Config {
  Strategy strategy = Strategy::zero3;
  /// zero2: full parameters stay in memory; only what the optimizer changed is gathered anew, in the next forward.
  bool keep_params = false;
  /// hybrid: consecutive ranks that share one copy of the model, such as the ranks of a node. Divides W.
  int shard_ranks = 0;
  /// zero3, hybrid: how many consecutive ranks, of those that share a copy, hold a whole one between them from a unit's
  /// forward to the step, such as the ranks of a node, among which it is gathered for backward; each keeps 1/n of it
  /// (fsdp/step/secondary_shard.h). Divides the ranks that share a copy; all of these, or 0: nothing is kept; 1: the
  /// unit stays whole until backward, as under zero2.
  int reshard_after_forward = 0;
  /// Units gathered ahead of the one that computes, in forward and in backward.
  int prefetch = 1;
  /// Upper bound for the bytes of units gathered ahead; 0: no bound but `prefetch`.
  int64_t prefetch_bytes = 0;
  /// Where full parameters stay in memory (ddp, zero1, keep_params): gradients are reduced in buckets of at most this
  /// size, each as soon as its last gradient is written. Small neighbouring units share one, a unit that is larger has
  /// several, and a parameter that is larger has one of its own. 0: one for each unit; unset: 25 MiB.
  std::optional<int64_t> bucket_bytes = {};
  /// Shards, and with them the optimizer's state and its step, live in host memory; zero2, zero3 and hybrid.
  bool move_params_to_cpu = false;
  /// Reduced gradients wait for the step in host memory; unset: as move_params_to_cpu.
  std::optional<bool> move_grads_to_cpu = {};
  /// What parameters are gathered and computed in: bf16, f16, or f32 for a model in f64; unset: their own dtype.
  /// Shards, state and the optimizer keep that. Floating inputs of every unit's module are converted, differentiably.
  std::optional<DType> param_dtype = {};
  /// What full gradients are sent in: f32, bf16 or f16; unset: the parameters' own dtype. They are added up in f32.
  std::optional<DType> reduce_dtype = {};
  /// What floating buffers are converted to when sharding, and saved in; unset: they stay as they are.
  std::optional<DType> buffer_dtype = {};
  /// What floating results of the root's calls are converted to, differentiably; unset: they are as computed.
  std::optional<DType> output_dtype = {};
  /// Parameters and buffers start from rank 0's values, as under PyTorch's DDP. Otherwise ranks whose seeds or values
  /// differ are refused. Costs the memory of one unit's full parameters while sharding.
  bool sync_module_states = false;
  /// Which submodules become units; empty: every child of the root that has parameters, and instead of one that has no
  /// forward, such as a ModuleList, those in it. What lies beside such blocks and has less than an eighth of the
  /// largest one's parameters stays in the root's unit.
  WrapPolicy wrap = {};
  /// Names of parameters below the root that are not sharded ('*' and '?' as in wrap_by_name): each rank keeps them
  /// whole, and their gradients are its own. Freeze them, or add their gradients up over the ranks before the step.
  /// clip_grad_norm does not see them, nor do checkpoints (train/checkpoint), which are refused.
  std::vector<std::string> leave_out = {};

  bool keeps_params() const { return keep_params || strategy == Strategy::ddp || strategy == Strategy::zero1; }
  /// Bytes of a bucket of gradients; 0: one for each unit.
  int64_t bucket() const { return keeps_params() ? bucket_bytes.value_or(int64_t(25) << 20) : 0; }
  bool reshards_after_forward() const {
    return (strategy == Strategy::zero3 || strategy == Strategy::hybrid) && reshard_after_forward != 1;
  }
  bool grads_to_cpu() const { return move_grads_to_cpu.value_or(move_params_to_cpu); }
  /// Ranks that one copy of the model is split over.
  int parts(int world_size) const;
};

}  // namespace shardgrad::fsdp
