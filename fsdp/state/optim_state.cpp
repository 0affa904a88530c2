#include <algorithm>
#include <set>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/fsdp/state/pieces.h>

namespace shardgrad::fsdp {
namespace {

DType state_dtype(const FlatParam& flat) { return flat.dtype() == DType::f64 ? DType::f64 : DType::f32; }

// One state tensor of a flat parameter, whole, from the parts that the ranks hold.
Tensor gather_state(const FlatParam& flat, dist::ProcessGroup* group, const std::string& kind,
                    const std::map<std::string, StateSlice>& mine) {
  DType dtype = state_dtype(flat);
  Tensor part = zeros({flat.shard().numel()}, dtype);
  for (size_t i = 0; i < flat.slices().size(); ++i) {
    auto found = mine.find(flat.slices()[i].name + "." + kind);
    if (found == mine.end()) continue;
    const Tensor& values = found->second.values;
    int64_t at = flat.owned(i).at;
    copy_into(part.rows(at, at + values.numel()), values);
  }
  if (!group) return part;
  Tensor whole = empty({flat.padded()}, dtype);
  group->all_gather(whole, part, {{"", "optim_state_dict"}}).host_wait();
  return whole;
}

// The parameters that have state.
std::set<std::string> stepped(const optim::Optimizer& optimizer) {
  std::set<std::string> names;
  for (const NamedParameter& parameter : optimizer.parameters())
    if (parameter.tensor.requires_grad()) names.insert(parameter.name);
  return names;
}

}  // namespace

StateSpecs optim_state_specs(const Sharded& sharded, const optim::Optimizer& optimizer) {
  StateSpecs specs;
  for (const std::string& name : stepped(optimizer)) {
    auto found = sharded.index().find(name);
    SG_CHECK(found != sharded.index().end(), "the optimizer's '", name, "' is not a parameter of this model");
    const Location& where = found->second;
    for (const std::string& kind : optimizer.state_names())
      specs[name + "." + kind] = {where.flat->slices()[where.slice].shape, state_dtype(*where.flat)};
  }
  for (const NamedParameter& parameter : optimizer.parameters()) specs[parameter.name + ".step"] = {{1}, DType::i64};
  return specs;
}

std::vector<StateSlice> sharded_optim_state_dict(optim::Optimizer& optimizer) {
  return copies_of(optimizer.state_slices());
}

void load_sharded_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, std::span<const StateSlice> pieces) {
  sharded.settle("load_sharded_optim_state_dict");
  load(sharded, "load_sharded_optim_state_dict", optimizer.state_slices(), pieces);
}

void visit_optim_pieces(optim::Optimizer& optimizer, const VisitPiece& visit) {
  piece_by_piece(optimizer.state_slices(), Copy::out, visit);
}

void fill_optim_pieces(Sharded& sharded, optim::Optimizer& optimizer, const VisitPiece& fill) {
  sharded.settle("fill_optim_pieces");
  fill_on_all(sharded, "fill_optim_pieces", [&] { piece_by_piece(optimizer.state_slices(), Copy::in, fill); });
}

// A rank that holds no part of a parameter does not count its steps.
std::map<std::string, int64_t> optim_steps(Sharded& sharded, const optim::Optimizer& optimizer) {
  dist::ProcessGroup* group = sharded.mesh().shard();
  std::map<std::string, int64_t> steps = optimizer.steps();
  if (!group) return steps;
  std::vector<int64_t> mine;
  for (const auto& [name, count] : steps) mine.push_back(count);
  std::vector<int64_t> all = group->share(mine, {"", "optim_state_dict"});
  size_t i = 0;
  for (auto& [name, count] : steps) {
    for (size_t at = i; at < all.size(); at += mine.size()) count = std::max(count, all[at]);
    ++i;
  }
  return steps;
}

StateDict full_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, bool rank0_only) {
  sharded.settle("full_optim_state_dict");
  dist::ProcessGroup* group = sharded.mesh().shard();
  bool wanted = !rank0_only || sharded.group().rank() == 0;
  std::map<std::string, StateSlice> mine;
  for (StateSlice& slice : optimizer.state_slices()) mine.emplace(slice.name, slice);
  std::set<std::string> with_state = stepped(optimizer);
  StateDict state;
  TagScope owner(Category::other);
  for (FlatParam* flat : sharded.flats())
    for (const std::string& kind : optimizer.state_names()) {
      auto state_of = [&](const std::string& parameter) {
        return with_state.contains(parameter) ? parameter + "." + kind : "";
      };
      if (std::ranges::all_of(flat->slices(), [&](const Slice& slice) { return state_of(slice.name).empty(); }))
        continue;
      Tensor whole = gather_state(*flat, group, kind, mine);
      if (wanted) add_copies(state, *flat, whole, state_of);
    }
  for (auto& [name, steps] : optim_steps(sharded, optimizer))
    if (wanted) state.emplace(name + ".step", from_vector<int64_t>({steps}, {1}, {DType::i64, kCpu}));
  return state;
}

void load_full_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, const StateDict& state) {
  sharded.settle("load_full_optim_state_dict");
  StateCheck check(state);
  for (const auto& [name, spec] : optim_state_specs(sharded, optimizer)) check.expect(name, spec.shape, spec.dtype);
  std::string problems = check.faults();
  std::map<std::string, int64_t> steps;
  for (const NamedParameter& parameter : optimizer.parameters()) {
    auto given = state.find(parameter.name + ".step");
    int64_t count = steps[parameter.name] = problems.empty() ? int64_t(given->second.item()) : 0;
    if (count < 0) problems += concat("\n  '", parameter.name, ".step' is ", count);
  }
  load(sharded, "load_full_optim_state_dict", optimizer.state_slices(), slices_of(state), std::move(problems));
  optimizer.set_steps(steps);
}

}  // namespace shardgrad::fsdp
