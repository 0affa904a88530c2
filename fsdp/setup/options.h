#pragma once
// The one list of a Config's options, walked by whoever checks, compares, reads, writes or explains them all.

#include <optional>

#include <shardgrad/fsdp/setup/config.h>

namespace shardgrad::fsdp {

/// What an option of a dtype may be.
inline constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

template <class T> inline constexpr bool kIsOptional = false;
template <class T> inline constexpr bool kIsOptional<std::optional<T>> = true;

/// Calls visit(name, value, meaning) for every option but `strategy` and `wrap`: a bool, an integer (0 or more), an
/// optional one, or an optional dtype of kDTypes. C is Config or const Config.
template <class C, class Visit> void visit_options(C& config, Visit&& visit) {
  visit("prefetch", config.prefetch, "units gathered ahead of the one that computes");
  visit("prefetch_bytes", config.prefetch_bytes, "bound for bytes gathered ahead; 0: none");
  visit("bucket_bytes", config.bucket_bytes,
        "ddp, zero1, keep_params: gradients are reduced in buckets of at most this; unset: 25 MiB; 0: one for each "
        "unit");
  visit("keep_params", config.keep_params, "zero2 only: full parameters stay in memory");
  visit("shard_ranks", config.shard_ranks, "hybrid only: ranks per copy, as in a node");
  visit("reshard_after_forward", config.reshard_after_forward,
        "zero3, hybrid: after forward each rank keeps 1/n of a unit, and backward gathers it in groups of n ranks; 0: "
        "from all; 1: it stays whole");
  visit("move_params_to_cpu", config.move_params_to_cpu,
        "shards, gradients and optimizer in host memory; zero2, zero3, hybrid");
  visit("move_grads_to_cpu", config.move_grads_to_cpu,
        "reduced gradients in host memory; unset: as `fsdp.move_params_to_cpu`");
  visit("param_dtype", config.param_dtype,
        "what parameters are gathered and computed in; `f16` turns loss scaling on (docs/mixed_precision.md)");
  visit("reduce_dtype", config.reduce_dtype, "what gradients are sent in; `own` is f32");
  visit("buffer_dtype", config.buffer_dtype, "what buffers are kept in");
  visit("output_dtype", config.output_dtype, "what the model's results are converted to");
  visit("sync_module_states", config.sync_module_states, "parameters and buffers start from rank 0's values");
}

/// Throws Error(input), naming the option and what to do, for a combination that cannot work.
void check(const Config& config, int world_size);
/// The same for reshard_after_forward alone, of a model or a unit that is split over `parts` ranks. `who` begins the
/// message.
void check_reshard(const std::string& who, const Config& config, int parts);

}  // namespace shardgrad::fsdp
