#pragma once

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/grad_scaler.h>

namespace shardgrad::fsdp {

/// A GradScaler whose decisions are the same on every rank that holds something of the model, also on ranks whose
/// shards are finite or empty: it looks at reduced gradients, and the ranks add up what they found. Of a model over an
/// axis of a mesh these are all ranks of the mesh.
///
///     auto sharded = fsdp::fully_shard(model.module(), mesh, "data");
///     optim::GradScaler scaler = fsdp::sharded_grad_scaler(*sharded);
optim::GradScaler sharded_grad_scaler(Sharded& sharded, optim::GradScalerOptions options = {});
/// The same for ranks of the caller's choice: of several models that must step together, or of one whose parts are
/// trained without being sharded. Its step throws Error(input), having changed nothing, for an optimizer of a sharded
/// model of which other ranks hold something, too: those would step without these.
optim::GradScaler sharded_grad_scaler(dist::ProcessGroup& group, optim::GradScalerOptions options = {});

}  // namespace shardgrad::fsdp
