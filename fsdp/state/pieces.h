#pragma once
// Parts of tensors in place and as copies, and how a rank's parts take what pieces have of them. Inside state/.

#include <shardgrad/fsdp/state/state.h>

namespace shardgrad::fsdp {

/// This rank's part of every parameter, in place.
std::vector<StateSlice> parts_of(Sharded& sharded);
/// Whole tensors as pieces, in place.
std::vector<StateSlice> slices_of(const StateDict& state);
std::vector<StateSlice> copies_of(std::vector<StateSlice> slices);

enum class Copy { out, in };
/// `call` with a copy of one piece after the other; with Copy::in it is written back after.
void piece_by_piece(std::span<const StateSlice> slices, Copy copy, const VisitPiece& call);

/// Throws Error(input) on every rank where one of them has `problems`. A collective, shown as `call`.
void agree(Sharded& sharded, const char* call, const std::string& problems);
/// Copies what `given` has of each target. `problems`: what is known not to fit. Throws Error(input) on every rank,
/// having changed nothing, where something does not fit on one of them. A collective, shown as `call`.
void load(Sharded& sharded, const char* call, std::span<const StateSlice> targets, std::span<const StateSlice> given,
          std::string problems = "");

/// Runs `fill`; throws on every rank where it threw on one. A collective, shown as `call`.
void fill_on_all(Sharded& sharded, const char* call, const std::function<void()>& fill);

/// Slices of a flat parameter, and what they are called.
struct Named {
  FlatParam* flat;
  std::vector<std::pair<size_t, std::string>> slices;
};
/// Adds copies on the cpu of what `whole`, the elements of the flat parameter, holds of the slices.
void add_copies(StateDict& state, const Named& named, const Tensor& whole, const std::string& suffix = "");

}  // namespace shardgrad::fsdp
