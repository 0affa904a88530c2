#pragma once
// Ranks begin with one model, and copies of it stay one. Where they do not, an error on every rank names what differs.

#include <map>
#include <string>

#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {

/// Throws Error(input), naming a parameter and two ranks, when ranks that hold the same part of a model (ddp, hybrid)
/// hold other values. A collective, between steps, of one number per rank; `call` is shown. Made by full_state_dict and
/// by train::save_checkpoint.
void check_replicas(Sharded& sharded, const char* call);

/// The versions of buffers (Tensor::version), for average_buffers.
std::vector<uint64_t> buffer_versions(std::span<const NamedParameter> buffers);
/// The floating buffers of every rank become their mean over the ranks, in one collective for all of them. With the
/// versions that they had `before`, only those that a rank has written since, of which the ranks tell each other first:
/// tables and masks stay as they are. Where it follows every step, ranks have one model at any time, whichever of them
/// saves or tests it.
void average_buffers(std::span<const NamedParameter> buffers, dist::ProcessGroup& group,
                     std::span<const uint64_t> before = {});

/// The buffers of a module for a checkpoint, as copies on the cpu. Of floating ones that differ between ranks, such as
/// running statistics of each rank's samples, the mean over the ranks; of others rank 0's. Where ranks hold different
/// parts of larger parameters (Part), those that hold the same ones have seen other samples, and those that hold others
/// must have the same buffers: throws Error(input) on every rank, naming one that belongs to a part. A collective.
std::map<std::string, Tensor> mean_buffers(nn::Module& module, dist::ProcessGroup& group);
/// Those that states have of a model that was sharded over an axis of a mesh, or over its group.
std::map<std::string, Tensor> mean_buffers(const Sharded& sharded);

}  // namespace shardgrad::fsdp
