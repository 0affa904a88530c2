#pragma once
// Parts of tensors in place and as copies, and how a rank's parts take what pieces have of them. Inside state/.

#include <set>

#include <shardgrad/fsdp/state/state.h>

namespace shardgrad::fsdp {

/// Throws Error(input) where a parameter is a part of a larger one, and the model is not sharded over an axis of a
/// mesh, on whose ranks the other parts are.
void check_joined(const Sharded& sharded);

/// This rank's shard of every parameter, in place, empty where it has nothing of it.
std::vector<StateSlice> shard_slices(Sharded& sharded);
/// Parameters, whole or parts, in place.
std::vector<StateSlice> slices_of(std::span<const NamedParameter> parameters);
/// Slices of parts as slices of the whole: rows of them, where the part is not along dimension 0.
std::vector<StateSlice> in_whole(std::span<const StateSlice> slices);
/// Whole tensors as pieces, in place.
std::vector<StateSlice> slices_of(const StateDict& state);
std::vector<StateSlice> copies_of(std::vector<StateSlice> slices);
Tensor copy_on_host(const Tensor& values, const Shape& shape);

enum class Copy { out, in };
/// `call` with a copy of one piece after the other; with Copy::in with memory for one, whose values are taken over.
void piece_by_piece(std::span<const StateSlice> slices, Copy copy, const VisitPiece& call);

using StatePlace = optim::Optimizer::StatePlace;
std::vector<StatePlace> places_of(std::span<const StateSlice> slices);
std::vector<StatePlace> in_whole(std::span<const StatePlace> places);
/// Throws Error(input) on every rank where on one of them `given` does not have what belongs in `places`, or has two
/// values of an element of it, or `problems` are known already. A collective, shown as `call`.
void check_fit(dist::ProcessGroup& ranks, const char* call, std::span<const StatePlace> places,
               std::span<const StateSlice> given, std::string problems = "");
/// A line, begun by a line break, for each name of pieces that is not one of `names`.
std::string unknown_in(std::span<const StateSlice> pieces, const std::set<std::string>& names);
/// Copies what `given` has of each target, which check_fit has found to fit.
void copy_pieces(std::span<const StateSlice> targets, std::span<const StateSlice> given);

/// optim_steps of an optimizer whose parameters lie on the ranks of `group`. A collective.
std::map<std::string, int64_t> steps_of(dist::ProcessGroup& group, const optim::Optimizer& optimizer);

/// Runs `fill`; throws on every rank where it threw on one. A collective, shown as `call`.
void fill_on_all(dist::ProcessGroup& ranks, const char* call, const std::function<void()>& fill);

/// Slices of a flat parameter, and what they are called.
struct Named {
  FlatParam* flat;
  std::vector<std::pair<size_t, std::string>> slices;
};
/// Adds copies on the cpu of what `whole`, the elements of the flat parameter, holds of the slices.
void add_copies(StateDict& state, const Named& named, const Tensor& whole, const std::string& suffix = "");

}  // namespace shardgrad::fsdp
