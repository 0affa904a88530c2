#include <algorithm>
#include <set>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/part.h>
#include <shardgrad/fsdp/setup/held_parts.h>
#include <shardgrad/fsdp/state/join.h>
#include <shardgrad/fsdp/step/slice_sink.h>
#include <shardgrad/optim/state_rates.h>

namespace shardgrad::fsdp {
namespace {

DType state_dtype(DType of) { return of == DType::f64 ? DType::f64 : DType::f32; }
DType state_dtype(const FlatParam& flat) { return state_dtype(flat.dtype()); }

// Where an optimizer's parameter lies. It may be named otherwise than by the model that was sharded, and there may be
// several of these.
const SliceSink& place_of(const NamedParameter& parameter) {
  const SliceSink* sink = sink_of(parameter);
  SG_CHECK(sink, "the optimizer's '", parameter.name, "' is not a parameter of a sharded model; give those that are ",
           "not sharded an optimizer of their own");
  return *sink;
}

// Of a parameter that is sharded or not.
DType state_dtype(const NamedParameter& parameter) {
  const SliceSink* sink = sink_of(parameter);
  return sink ? state_dtype(sink->flat()) : state_dtype(parameter.tensor.dtype());
}

// What Sharded::settle refuses, where no Sharded is given: the optimizer's parameters may be those of several.
void check_between_steps(const optim::Optimizer& optimizer, const char* call) {
  SG_CHECK(!in_backward(), call, ": called inside backward; call it between steps");
  for (const NamedParameter& parameter : optimizer.parameters()) {
    const SliceSink* sink = sink_of(parameter);
    SG_CHECK(!sink || !sink->flat().summoned().defined(), call,
             ": called in a scope of SummonFullParams; leave the scope first");
  }
}

// As check_joined of a model: the optimizer's parameters may be those of several, and of none.
void check_joined(const optim::Optimizer& optimizer) {
  for (const NamedParameter& parameter : optimizer.parameters()) {
    const SliceSink* sink = sink_of(parameter);
    if (!sink || !sink->flat().mesh().has_other_holders())
      check_whole(parameter.name, parameter.tensor.shape(), parameter.part);
  }
}

// One state tensor of a flat parameter, whole, from the parts that the ranks hold.
Tensor gather_state(const Named& named, const std::string& kind, const std::map<std::string, StateSlice>& mine) {
  const FlatParam& flat = *named.flat;
  DType dtype = state_dtype(flat);
  Tensor part = zeros({flat.shard().numel()}, dtype);
  for (const auto& [i, name] : named.slices) {
    auto found = mine.find(name + kind);
    if (found == mine.end()) continue;
    const Tensor& values = found->second.values;
    int64_t at = flat.owned(i).at;
    copy_into(part.rows(at, at + values.numel()), values);
  }
  dist::ProcessGroup* group = flat.mesh().shard();
  if (!group) return part;
  Tensor whole = empty({flat.padded()}, dtype);
  group->all_gather(whole, part, {{"", "optim_state_dict"}}).host_wait();
  return whole;
}

// Whether a state has tensors of it: as Optimizer::state_dict, not where it has no elements.
bool is_saved(const optim::Optimizer& optimizer, size_t i) {
  return optimizer.has_state(i) && optimizer.parameters()[i].tensor.numel() > 0;
}

// Those that have state, in the order of the optimizer's parameters, which every rank has alike.
std::vector<Named> with_state(const optim::Optimizer& optimizer) {
  std::vector<Named> flats;
  std::map<const FlatParam*, size_t> known;
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const SliceSink& place = place_of(optimizer.parameters()[i]);
    if (!is_saved(optimizer, i)) continue;
    auto [at, first] = known.try_emplace(&place.flat(), flats.size());
    if (first) flats.push_back({&place.flat(), {}});
    flats[at->second].slices.emplace_back(place.slice(), optimizer.parameters()[i].name);
  }
  return flats;
}

// Of every state tensor that there may be.
std::set<std::string> state_names_of(const optim::Optimizer& optimizer) {
  std::set<std::string> names;
  for (const NamedParameter& parameter : optimizer.parameters())
    for (const std::string& kind : optimizer.state_names()) names.insert(parameter.name + "." + kind);
  return names;
}

// Those of `names`, which every rank has alike, of which some rank was given pieces.
std::set<std::string> given_somewhere(dist::ProcessGroup& group, const char* call, const std::set<std::string>& names,
                                      std::span<const StateSlice> pieces) {
  std::set<std::string> here, given;
  for (const StateSlice& piece : pieces) here.insert(piece.name);
  if (names.empty()) return given;
  std::vector<int64_t> flags;
  for (const std::string& name : names) flags.push_back(here.contains(name));
  Tensor ranks = from_vector(flags, {int64_t(flags.size())}, {DType::i64, kCpu});
  group.all_reduce(ranks, {{"", call}}).host_wait();
  flags = ranks.to_vector<int64_t>();
  auto flag = flags.begin();
  for (const std::string& name : names)
    if (*flag++ > 0) given.insert(name);
  return given;
}

// Of every state tensor that there is, empty where this rank has nothing of it.
std::vector<StateSlice> states_of(optim::Optimizer& optimizer) {
  std::map<std::string, StateSlice> mine;
  for (StateSlice& slice : optimizer.state_slices()) mine.emplace(slice.name, std::move(slice));
  std::vector<StateSlice> all;
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const NamedParameter& parameter = optimizer.parameters()[i];
    if (!is_saved(optimizer, i)) continue;
    for (const std::string& kind : optimizer.state_names()) {
      auto found = mine.find(parameter.name + "." + kind);
      all.push_back(found != mine.end() ? found->second
                                        : StateSlice{parameter.name + "." + kind, parameter.tensor.shape(), 0,
                                                     empty({0}, {state_dtype(parameter), kCpu}), parameter.part});
    }
  }
  return all;
}

void add_steps_and_rates(StateDict& state, const std::map<std::string, int64_t>& counts,
                         const optim::Optimizer& optimizer) {
  for (const auto& [name, steps] : counts)
    state.emplace(name + ".step", from_vector<int64_t>({steps}, {1}, {DType::i64, kCpu}));
  optim::add_rates(state, optimizer);
}

StateDict joined_state(optim::Optimizer& optimizer, dist::ProcessGroup& holders, bool rank0_only) {
  bool wanted = !rank0_only || holders.rank() == 0;
  std::map<std::string, int64_t> steps = steps_of(holders, optimizer);
  StateDict state = join(states_of(optimizer), holders, "full_optim_state_dict", wanted);
  if (wanted) add_steps_and_rates(state, steps, optimizer);
  return state;
}

// A state of before has no rates.
StateSpecs specs_of(const optim::Optimizer& optimizer, const IsGiven& given) {
  StateSpecs specs;
  for (const auto& [name, spec] : optim::rates_specs(optimizer))
    if (!given || given(name)) specs[name] = spec;
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const NamedParameter& parameter = optimizer.parameters()[i];
    specs[parameter.name + ".step"] = {{1}, DType::i64};
    for (const std::string& kind : optimizer.state_names()) {
      std::string name = parameter.name + "." + kind;
      if (!is_saved(optimizer, i) && !(given && given(name))) continue;
      specs[name] = {whole_shape(parameter.tensor.shape(), parameter.part), state_dtype(parameter)};
    }
  }
  return specs;
}

void load_full(optim::Optimizer& optimizer, dist::ProcessGroup& holders, const StateDict& state) {
  auto given = [&](const std::string& name) { return state.contains(name); };
  StateCheck check(state);
  for (const auto& [name, spec] : specs_of(optimizer, given)) check.expect(name, spec.shape, spec.dtype);
  std::string problems = check.faults();
  std::map<std::string, int64_t> steps;
  for (const NamedParameter& parameter : optimizer.parameters()) {
    auto found = state.find(parameter.name + ".step");
    int64_t count = steps[parameter.name] = problems.empty() ? int64_t(found->second.item()) : 0;
    if (count < 0) problems += concat("\n  '", parameter.name, ".step' is ", count);
  }
  std::map<std::string, optim::Optimizer::Rates> rates;
  if (problems.empty()) problems = faults_of(rates = optim::rates_in(state, optimizer));
  std::vector<StateSlice> pieces = slices_of(state);
  check_fit(holders, "load_full_optim_state_dict", in_whole(optimizer.planned_states(given)), pieces, problems);
  optimizer.allocate_states(given);
  copy_pieces(in_whole(optimizer.state_slices()), pieces);
  optimizer.set_steps(steps);
  optimizer.set_rates(rates);
}

}  // namespace

StateSpecs optim_state_specs(const optim::Optimizer& optimizer, const IsGiven& given) {
  for (const NamedParameter& parameter : optimizer.parameters()) place_of(parameter);
  check_joined(optimizer);
  return specs_of(optimizer, given);
}

std::vector<StateSlice> sharded_optim_state_dict(optim::Optimizer& optimizer) {
  check_between_steps(optimizer, "sharded_optim_state_dict");
  check_joined(optimizer);
  return copies_of(in_whole(optimizer.state_slices()));
}

void load_sharded_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, std::span<const StateSlice> pieces) {
  constexpr const char* kCall = "load_sharded_optim_state_dict";
  sharded.settle(kCall);
  check_joined(sharded);
  std::set<std::string> names = state_names_of(optimizer);
  check_same_names(names, sharded.holders(), kCall);
  std::set<std::string> somewhere = given_somewhere(sharded.holders(), kCall, names, pieces);
  auto given = [&](const std::string& name) { return somewhere.contains(name); };
  check_fit(sharded.holders(), kCall, in_whole(optimizer.planned_states(given)), pieces, unknown_in(pieces, names));
  optimizer.allocate_states(given);
  copy_pieces(in_whole(optimizer.state_slices()), pieces);
}

void visit_optim_pieces(optim::Optimizer& optimizer, const VisitPiece& visit) {
  check_between_steps(optimizer, "visit_optim_pieces");
  check_joined(optimizer);
  piece_by_piece(in_whole(optimizer.state_slices()), Copy::out, visit);
}

void fill_optim_pieces(Sharded& sharded, optim::Optimizer& optimizer, const VisitPiece& fill) {
  sharded.settle("fill_optim_pieces");
  check_joined(sharded);
  fill_on_all(sharded.holders(), "fill_optim_pieces",
              [&] { piece_by_piece(in_whole(optimizer.state_slices()), Copy::in, fill); });
}

StateDict full_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, bool rank0_only) {
  sharded.settle("full_optim_state_dict");
  if (sharded.on_mesh()) {
    for (const NamedParameter& parameter : optimizer.parameters()) place_of(parameter);
    return joined_state(optimizer, sharded.holders(), rank0_only);
  }
  check_joined(optimizer);
  bool wanted = !rank0_only || sharded.group().rank() == 0;
  std::map<std::string, int64_t> steps = optim_steps(sharded, optimizer);
  std::vector<Named> flats = with_state(optimizer);
  std::map<std::string, StateSlice> mine;
  for (StateSlice& slice : optimizer.state_slices()) mine.emplace(slice.name, slice);
  StateDict state;
  TagScope owner(Category::other);
  for (const Named& named : flats)
    for (const std::string& kind : optimizer.state_names()) {
      Tensor whole = gather_state(named, "." + kind, mine);
      if (wanted) add_copies(state, named, whole, "." + kind);
    }
  if (wanted) add_steps_and_rates(state, steps, optimizer);
  return state;
}

StateDict full_optim_state_dict(optim::Optimizer& optimizer, dist::ProcessGroup& holders, bool rank0_only) {
  check_between_steps(optimizer, "full_optim_state_dict");
  return joined_state(optimizer, holders, rank0_only);
}

void load_full_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, const StateDict& state) {
  sharded.settle("load_full_optim_state_dict");
  for (const NamedParameter& parameter : optimizer.parameters()) place_of(parameter);
  check_joined(optimizer);
  load_full(optimizer, sharded.holders(), state);
}

void load_full_optim_state_dict(optim::Optimizer& optimizer, dist::ProcessGroup& holders, const StateDict& state) {
  check_between_steps(optimizer, "load_full_optim_state_dict");
  check_parts(slices_of(optimizer.parameters()), holders, "load_full_optim_state_dict");
  load_full(optimizer, holders, state);
}

}  // namespace shardgrad::fsdp
