#pragma once
// What a flat parameter (fsdp/step/flat_param.h) keeps its values in, and the values that it begins with.
//
//     the whole                      shard                   full
//     comes and goes                 memory of its own       has none until it is gathered
//       shards in host memory        host memory             likewise
//       shards in common memory      its slice of that       a window on all slices, closed until it is gathered
//     stays                          a part of the whole     a window on the whole
//       as a conversion              memory of its own       likewise; `converted` is a part of the whole

#include <span>

#include <shardgrad/fsdp/setup/flat_layout.h>

namespace shardgrad::fsdp {

struct FlatBuffers {
  Tensor shard;            ///< this rank's part, in the layout's dtype; has no values yet
  Tensor full;             ///< what the module's parameters are views of, in its param_dtype
  Tensor converted;        ///< the shard in param_dtype, where that is a part of `full`
  bool permanent = false;  ///< `full` never leaves memory
  bool common = false;     ///< the ranks' shards lie side by side in common memory
};

/// A collective of the ranks that share a copy, where these have common memory.
FlatBuffers make_flat_buffers(const FlatLayout& layout, const Config& config);

/// Gives this rank's shard what the parameters hold, or, where they hold nothing yet, their initial values.
/// `from_rank0`: a collective, by which all ranks begin with those of rank 0.
void fill_shard(const Tensor& shard, const FlatLayout& layout, std::span<nn::Parameter* const> parameters,
                bool from_rank0);

}  // namespace shardgrad::fsdp
