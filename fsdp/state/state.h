#pragma once
// State of model and optimizer as pieces or as whole tensors. A piece knows its tensor's name and shape and where in it
// it begins, so pieces of any number of ranks load at any other, and a file of pieces says nothing about ranks. All of
// these are called by every rank, between steps: those that copy state refuse to inside backward and in a scope of
// SummonFullParams.
//
// Parameters that are parts of larger ones (Part) are saved and loaded as the whole ones: a part along dimension 0 is
// a piece of it, another one rows of pieces, so state fits any other mesh, or one rank. A model that has some is
// sharded over an axis of its mesh (fully_shard), and all ranks of the mesh call these, and get an error of one of
// them; otherwise they are refused.

#include <functional>

#include <shardgrad/autograd/state_check.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/optimizer.h>

namespace shardgrad::fsdp {

using StateSlice = optim::Optimizer::StateSlice;
using StateDict = std::map<std::string, Tensor>;

/// What full_state_dict and full_optim_state_dict have of what is sharded, which is all but Config::leave_out: the same
/// on every rank. Also of parameters that are frozen, if they have state or `given` says that there is some to be
/// loaded.
StateSpecs state_specs(const Sharded& sharded);
using IsGiven = optim::Optimizer::IsGiven;
StateSpecs optim_state_specs(const optim::Optimizer& optimizer, const IsGiven& given = {});

/// This rank's part of every parameter that is sharded, as copies on the cpu. Sends nothing. Of what ranks have copies
/// of (ddp, hybrid, a norm on the model axis of a mesh), each has pieces, and whether they are still the same is seen
/// when they are loaded; check_replicas says it before.
std::vector<StateSlice> sharded_state_dict(Sharded& sharded);
/// Takes this rank's part out of `pieces`, which may come from any number of ranks. Throws Error(input) on every rank,
/// having changed nothing, listing what they do not cover, elements of which two of them have different values, or
/// names of them that are not the model's.
void load_sharded_state_dict(Sharded& sharded, std::span<const StateSlice> pieces);

/// The same for the optimizer's state ("<parameter>.exp_avg", …), without its step counts. A load that is refused has
/// not made state of frozen parameters either.
std::vector<StateSlice> sharded_optim_state_dict(optim::Optimizer& optimizer);
void load_sharded_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, std::span<const StateSlice> pieces);

/// The same four piece by piece, for who writes and reads files: `visit` gets a copy on the cpu of at most kPieceBytes,
/// which is gone when the next one comes, so no second shard is needed. `fill` gets memory for one, and what it writes
/// there is loaded. Where it throws on one rank, every rank throws, and the state is filled in part. Nothing compares
/// the pieces that ranks have copies of: call check_replicas before they are written.
inline constexpr int64_t kPieceBytes = 1 << 20;
using VisitPiece = std::function<void(const StateSlice&)>;
void visit_pieces(Sharded& sharded, const VisitPiece& visit);
void fill_pieces(Sharded& sharded, const VisitPiece& fill);
void visit_optim_pieces(optim::Optimizer& optimizer, const VisitPiece& visit);
void fill_optim_pieces(Sharded& sharded, optim::Optimizer& optimizer, const VisitPiece& fill);

/// How many steps each parameter has been through, known on every rank: Optimizer::steps knows those of its parts.
std::map<std::string, int64_t> optim_steps(Sharded& sharded, const optim::Optimizer& optimizer);

/// The optimizer's whole state, in the form of Optimizer::state_dict of a plain model, as copies on the cpu; gathered
/// one flat parameter at a time. Names are those that the optimizer was given; its parameters may belong to several
/// sharded models. With `rank0_only` other ranks get an empty map. Throws Error(input) for a parameter of no such one.
StateDict full_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, bool rank0_only = true);
/// Each rank takes its part. Throws Error(input), having changed nothing, listing missing, unknown and misshapen names.
void load_full_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, const StateDict& state);

/// The same, of a model and an optimizer that are not sharded, of which `holders` hold parts and copies: the ranks of
/// a mesh, or of one of its axes. In the form of Module::state_dict and Optimizer::state_dict of the whole model, with
/// buffers as mean_buffers has them. Throws Error(input) on every rank, naming tensors, ranges and ranks, where parts
/// do not make whole tensors, and where copies differ; a load that throws has changed nothing.
StateDict full_state_dict(nn::Module& module, dist::ProcessGroup& holders, bool rank0_only = true);
void load_full_state_dict(nn::Module& module, dist::ProcessGroup& holders, const StateDict& state);
StateDict full_optim_state_dict(optim::Optimizer& optimizer, dist::ProcessGroup& holders, bool rank0_only = true);
void load_full_optim_state_dict(optim::Optimizer& optimizer, dist::ProcessGroup& holders, const StateDict& state);

}  // namespace shardgrad::fsdp
