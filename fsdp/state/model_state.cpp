#include <shardgrad/autograd/ops.h>
#include <shardgrad/fsdp/state/pieces.h>
#include <shardgrad/fsdp/state/replicas.h>

namespace shardgrad::fsdp {
namespace {

void all_written(Sharded& sharded) {
  for (FlatParam* flat : sharded.flats()) flat->shard_written();
}

void load_parameters(const char* call, Sharded& sharded, std::span<const StateSlice> given, std::string problems = "") {
  sharded.settle(call);
  std::vector<StateSlice> parts = parts_of(sharded);
  check_fit(sharded, call, places_of(parts), given, std::move(problems));
  copy_pieces(parts, given);
  all_written(sharded);
}

}  // namespace

StateDict full_state_dict(Sharded& sharded, bool rank0_only) {
  check_all_whole(sharded);
  check_replicas(sharded, "full_state_dict");
  sharded.settle("full_state_dict");
  bool wanted = !rank0_only || sharded.group().rank() == 0;
  StateDict state;
  TagScope owner(Category::other);
  std::map<const FlatParam*, Named> named;
  for (const auto& [name, where] : sharded.index()) {
    named[where.flat].flat = where.flat;
    named[where.flat].slices.emplace_back(where.slice, name);
  }
  for (FlatParam* flat : sharded.flats()) {
    Tensor whole = flat->whole("state_dict");
    if (wanted) add_copies(state, named[flat], whole);
  }
  for (const auto& [name, tensor] : sharded.left_out())
    if (wanted) state[name] = clone(tensor.detach()).to(kCpu);
  return state;
}

StateSpecs state_specs(const Sharded& sharded) {
  check_all_whole(sharded);
  StateSpecs specs;
  for (const auto& [name, where] : sharded.index())
    specs[name] = {where.flat->slices()[where.slice].shape, where.flat->dtype()};
  return specs;
}

void load_full_state_dict(Sharded& sharded, const StateDict& state) {
  StateCheck check(state);
  for (const auto& [name, spec] : state_specs(sharded)) check.expect(name, spec.shape, spec.dtype);
  StateDict of_units = state;
  for (const auto& [name, tensor] : sharded.left_out()) {
    check.expect(name, tensor.shape(), tensor.dtype());
    of_units.erase(name);
  }
  load_parameters("load_full_state_dict", sharded, slices_of(of_units), check.faults());
  for (const auto& [name, tensor] : sharded.left_out()) copy_into(tensor, state.at(name));
}

std::vector<StateSlice> sharded_state_dict(Sharded& sharded) {
  sharded.settle("sharded_state_dict");
  return copies_of(parts_of(sharded));
}

void load_sharded_state_dict(Sharded& sharded, std::span<const StateSlice> pieces) {
  load_parameters("load_sharded_state_dict", sharded, pieces);
}

void visit_pieces(Sharded& sharded, const VisitPiece& visit) {
  sharded.settle("visit_pieces");
  piece_by_piece(parts_of(sharded), Copy::out, visit);
}

void fill_pieces(Sharded& sharded, const VisitPiece& fill) {
  sharded.settle("fill_pieces");
  sharded.group().barrier({{"", "fill_pieces"}});  // nobody reads this rank's shard any more
  fill_on_all(sharded, "fill_pieces", [&] {
    struct AtEnd {
      Sharded& sharded;
      ~AtEnd() { all_written(sharded); }
    } at_end{sharded};
    piece_by_piece(parts_of(sharded), Copy::in, fill);
  });
}

}  // namespace shardgrad::fsdp
