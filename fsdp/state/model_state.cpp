#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/part.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/fsdp/state/join.h>
#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/optim/ranges.h>

namespace shardgrad::fsdp {
namespace {

void check_not_leased(const Sharded& sharded, const char* call) {
  dist::together(sharded.holders(), {"", call}, [&] {
    for (const FlatParam* flat : sharded.flats()) flat->check_not_leased();
  });
}

void all_written(Sharded& sharded) {
  optim::reach_all(sharded.flats(), [](FlatParam* flat) { flat->shard_written(); });
}

// `targets` are slices of the whole, of which this rank's shards are some.
void load_targets(const char* call, Sharded& sharded, std::span<const StateSlice> targets,
                  std::span<const StateSlice> given, std::string problems = "") {
  check_not_leased(sharded, call);
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

void add_specs(StateSpecs& specs, std::span<const NamedParameter> tensors) {
  for (const NamedParameter& each : tensors)
    specs[each.name] = {whole_shape(each.tensor.shape(), each.part), each.tensor.dtype()};
}

// What is wrong with a state that is to have these, and may have some under a second name as well.
std::string faults_of(const StateDict& state, const StateSpecs& specs,
                      const std::map<std::string, std::string>& aliases) {
  StateCheck check(state);
  for (const auto& [name, spec] : specs) check.expect(name, spec.shape, spec.dtype);
  std::string different;
  for (const auto& [name, first] : aliases) {
    auto given = state.find(name), tied = state.find(first);
    auto spec = specs.find(first);
    if (given == state.end() || spec == specs.end()) continue;
    check.expect(name, spec->second.shape, spec->second.dtype);
    if (tied != state.end() && values_differ(given->second, tied->second))
      different += concat("\n  '", name, "' was given other values than '", first, "', to which it is tied");
  }
  return check.faults() + different;
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
  if (StateDict means = mean_buffers(sharded); wanted) state = std::move(means);
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
  StateSpecs specs = state_specs(sharded);
  add_specs(specs, sharded.left_out());
  std::vector<StateSlice> targets = in_whole(all_slices_of(sharded));
  std::vector<NamedParameter> buffers = sharded.saved_buffers();
  auto is_given = [&](const NamedParameter& buffer) { return state.contains(buffer.name); };
  if (std::ranges::none_of(buffers, is_given)) buffers.clear();
  add_specs(specs, buffers);
  for (StateSlice& slice : slices_of(buffers)) targets.push_back(std::move(slice));
  load_targets("load_full_state_dict", sharded, targets, slices_of(state), faults_of(state, specs, sharded.aliases()));
}

void load_full_state_dict(nn::Module& module, dist::ProcessGroup& holders, const StateDict& state) {
  constexpr const char* kCall = "load_full_state_dict";
  std::vector<NamedParameter> tensors = module.named_parameters();
  check_plain(kCall, tensors);
  dist::together(holders, {"", kCall}, [&] { module.materialize(); });
  check_parts(slices_of(tensors), holders, kCall);
  for (NamedParameter& buffer : module.saved_buffers()) tensors.push_back(std::move(buffer));
  StateSpecs specs;
  add_specs(specs, tensors);
  std::vector<StateSlice> targets = in_whole(slices_of(tensors)), given = slices_of(state);
  check_fit(holders, kCall, places_of(targets), given, faults_of(state, specs, module.aliases()));
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
  check_not_leased(sharded, "fill_pieces");
  fill_on_all(sharded.holders(), "fill_pieces", [&] {
    try {
      piece_by_piece(in_whole(shard_slices(sharded)), Copy::in, fill);
    } catch (...) {
      all_written(sharded);
      throw;
    }
    all_written(sharded);
  });
}

}  // namespace shardgrad::fsdp
