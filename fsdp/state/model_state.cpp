#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/part.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/fsdp/state/join.h>
#include <shardgrad/fsdp/state/replicas.h>

namespace shardgrad::fsdp {
namespace {

void all_written(Sharded& sharded) {
  for (FlatParam* flat : sharded.flats()) flat->shard_written();
}

// `targets` are slices of the whole, of which this rank's shards are some.
void load_targets(const char* call, Sharded& sharded, std::span<const StateSlice> targets,
                  std::span<const StateSlice> given, std::string problems = "") {
  check_fit(sharded.holders(), call, places_of(targets), given, std::move(problems));
  copy_pieces(targets, given);
  all_written(sharded);
}

// With those that are not sharded.
std::vector<StateSlice> all_slices_of(Sharded& sharded) {
  std::vector<StateSlice> all = shard_slices(sharded);
  for (StateSlice& slice : slices_of(sharded.left_out())) all.push_back(std::move(slice));
  return all;
}

void check_plain(const char* call, std::span<const NamedParameter> parameters) {
  for (const NamedParameter& parameter : parameters)
    SG_CHECK(parameter.tensor.storage()->tag().unit == 0, call, ": '", parameter.name,
             "' is sharded; give what fully_shard has returned, in the place of the module");
}

}  // namespace

StateDict full_state_dict(Sharded& sharded, bool rank0_only) {
  sharded.settle("full_state_dict");
  check_joined(sharded);
  bool wanted = !rank0_only || sharded.holders().rank() == 0;
  StateDict state;
  if (StateDict means = mean_buffers(sharded.saved_buffers(), sharded.holders()); wanted) state = std::move(means);
  if (sharded.on_mesh()) {
    state.merge(join(all_slices_of(sharded), sharded.holders(), "full_state_dict", wanted));
    return state;
  }
  check_replicas(sharded, "full_state_dict");
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

StateDict full_state_dict(nn::Module& module, dist::ProcessGroup& holders, bool rank0_only) {
  constexpr const char* kCall = "full_state_dict";
  std::vector<NamedParameter> parameters = module.named_parameters();
  check_plain(kCall, parameters);
  dist::together(holders, {"", kCall}, [&] { module.materialize(); });
  bool wanted = !rank0_only || holders.rank() == 0;
  StateDict state = join(slices_of(parameters), holders, kCall, wanted);
  for (auto& [name, tensor] : mean_buffers(module, holders))
    if (wanted) state.emplace(name, tensor);
  return state;
}

StateSpecs state_specs(const Sharded& sharded) {
  check_joined(sharded);
  StateSpecs specs;
  for (const auto& [name, where] : sharded.index()) {
    const Slice& slice = where.flat->slices()[where.slice];
    specs[name] = {whole_shape(slice.shape, slice.part), where.flat->dtype()};
  }
  return specs;
}

void load_full_state_dict(Sharded& sharded, const StateDict& state) {
  sharded.settle("load_full_state_dict");
  StateCheck check(state);
  for (const auto& [name, spec] : state_specs(sharded)) check.expect(name, spec.shape, spec.dtype);
  for (const NamedParameter& left : sharded.left_out())
    check.expect(left.name, whole_shape(left.tensor.shape(), left.part), left.tensor.dtype());
  std::vector<StateSlice> targets = in_whole(all_slices_of(sharded));
  std::vector<NamedParameter> buffers = sharded.saved_buffers();
  auto is_given = [&](const NamedParameter& buffer) { return state.contains(buffer.name); };
  if (std::ranges::none_of(buffers, is_given)) buffers.clear();
  for (const NamedParameter& buffer : buffers) check.expect(buffer.name, buffer.tensor.shape(), buffer.tensor.dtype());
  for (StateSlice& slice : slices_of(buffers)) targets.push_back(std::move(slice));
  load_targets("load_full_state_dict", sharded, targets, slices_of(state), check.faults());
}

void load_full_state_dict(nn::Module& module, dist::ProcessGroup& holders, const StateDict& state) {
  constexpr const char* kCall = "load_full_state_dict";
  std::vector<NamedParameter> tensors = module.named_parameters();
  check_plain(kCall, tensors);
  dist::together(holders, {"", kCall}, [&] { module.materialize(); });
  check_parts(slices_of(tensors), holders, kCall);
  for (NamedParameter& buffer : module.saved_buffers()) tensors.push_back(std::move(buffer));
  StateCheck check(state);
  for (const NamedParameter& each : tensors)
    check.expect(each.name, whole_shape(each.tensor.shape(), each.part), each.tensor.dtype());
  std::vector<StateSlice> targets = in_whole(slices_of(tensors)), given = slices_of(state);
  check_fit(holders, kCall, places_of(targets), given, check.faults());
  copy_pieces(targets, given);
}

std::vector<StateSlice> sharded_state_dict(Sharded& sharded) {
  sharded.settle("sharded_state_dict");
  return copies_of(in_whole(shard_slices(sharded)));
}

void load_sharded_state_dict(Sharded& sharded, std::span<const StateSlice> pieces) {
  sharded.settle("load_sharded_state_dict");
  std::set<std::string> names;
  for (const auto& [name, where] : sharded.index()) names.insert(name);
  std::vector<StateSlice> targets = in_whole(shard_slices(sharded));
  load_targets("load_sharded_state_dict", sharded, targets, pieces, unknown_in(pieces, names));
}

void visit_pieces(Sharded& sharded, const VisitPiece& visit) {
  sharded.settle("visit_pieces");
  piece_by_piece(in_whole(shard_slices(sharded)), Copy::out, visit);
}

void fill_pieces(Sharded& sharded, const VisitPiece& fill) {
  sharded.settle("fill_pieces");
  sharded.group().barrier({{"", "fill_pieces"}});  // nobody reads this rank's shard any more
  fill_on_all(sharded.holders(), "fill_pieces", [&] {
    struct AtEnd {
      Sharded& sharded;
      ~AtEnd() { all_written(sharded); }
    } at_end{sharded};
    piece_by_piece(in_whole(shard_slices(sharded)), Copy::in, fill);
  });
}

}  // namespace shardgrad::fsdp
