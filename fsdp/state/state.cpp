#include <shardgrad/fsdp/state/state.h>

#include <algorithm>
#include <exception>
#include <set>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/fsdp/state/replicas.h>

namespace shardgrad::fsdp {
namespace {

// This rank's part of every parameter, in place.
std::vector<StateSlice> parts_of(Sharded& sharded) {
  std::vector<StateSlice> parts;
  for (const auto& [name, where] : sharded.index()) {
    where.flat->wait_for_shard();
    auto [begin, end] = where.flat->elements_of(where.slice);
    const Slice& slice = where.flat->slices()[where.slice];
    int64_t first = where.flat->shard_begin() + begin - slice.offset;
    int64_t count = std::clamp(slice.numel() - first, int64_t(0), end - begin);
    if (count > 0) parts.push_back({name, slice.shape, first, where.flat->shard().rows(begin, begin + count)});
  }
  return parts;
}

std::vector<StateSlice> copies_of(std::vector<StateSlice> slices) {
  TagScope owner(Category::other);
  for (StateSlice& slice : slices) {
    Tensor copy = empty(slice.values.shape(), {slice.values.dtype(), kCpu});
    copy_into(copy, slice.values);
    slice.values = copy;
  }
  return slices;
}

enum class Copy { out, in };
// `call` with a copy of one piece after the other; with Copy::in it is written back after.
void piece_by_piece(std::span<const StateSlice> slices, Copy copy, const VisitPiece& call) {
  TagScope owner(Category::other);
  for (const StateSlice& slice : slices) {
    int64_t most = kPieceBytes / int64_t(size_of(slice.values.dtype())), count = slice.values.numel();
    for (int64_t begin = 0; begin < count; begin += most) {
      Tensor part = slice.values.rows(begin, std::min(begin + most, count));
      Tensor values = empty(part.shape(), {part.dtype(), kCpu});
      copy_into(values, part);
      call({slice.name, slice.shape, slice.begin + begin, values});
      if (copy == Copy::in) copy_into(part, values);
    }
  }
}

void all_written(Sharded& sharded) {
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) flat->shard_written();
}

struct Overlap {
  int64_t begin, end;
};
Overlap overlap(const StateSlice& a, const StateSlice& b) {
  return {std::max(a.begin, b.begin), std::min(a.begin + a.values.numel(), b.begin + b.values.numel())};
}

bool on_some_rank(Sharded& sharded, const char* call, bool here) {
  Tensor ranks = from_vector<int64_t>({here}, {1}, {DType::i64, kCpu});
  sharded.group().all_reduce(ranks, {{"", call}}).host_wait();
  return ranks.item() != 0;
}

// Every rank refuses what one of them cannot load.
void agree(Sharded& sharded, const char* call, const std::string& problems) {
  bool faulty = on_some_rank(sharded, call, !problems.empty());
  SG_CHECK(problems.empty(), call, ": the state does not fit; nothing was changed:", problems);
  SG_CHECK(!faulty, call, ": the state does not fit on another rank; nothing was changed");
}

template <class Call> std::exception_ptr failure_of(const Call& call) {
  try {
    call();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Every rank throws where one could not fill its pieces.
void check_filled(Sharded& sharded, const char* call, const std::exception_ptr& failure) {
  bool failed = on_some_rank(sharded, call, failure != nullptr);
  if (failure) std::rethrow_exception(failure);
  SG_CHECK(!failed, call, ": the state could not be read on another rank; it is filled in part");
}

using Pieces = std::multimap<std::string_view, const StateSlice*>;

template <class Visit> void for_each_piece(const Pieces& pieces, const std::string& name, Visit&& visit) {
  for (auto [it, end] = pieces.equal_range(name); it != end; ++it) visit(*it->second);
}

// What the pieces lack of `target`, as a line; empty when they have all of it.
std::string gap(const Pieces& pieces, const StateSlice& target) {
  int64_t reached = target.begin;  // everything before it is covered
  bool fits = true;
  for (int64_t before = -1; before < reached;) {
    before = reached;
    for_each_piece(pieces, target.name, [&](const StateSlice& slice) {
      fits = fits && slice.shape == target.shape && slice.values.dtype() == target.values.dtype();
      if (slice.begin <= reached) reached = std::max(reached, overlap(target, slice).end);
    });
  }
  if (!pieces.contains(target.name)) return concat("\n  missing: '", target.name, "'");
  if (!fits) return concat("\n  '", target.name, "': not ", target.values.dtype(), target.shape);
  if (reached == target.begin + target.values.numel()) return "";
  return concat("\n  '", target.name, "': element ", reached, " is in no piece");
}

// Copies what `given` has of each target. `problems`: what is known not to fit.
void load(Sharded& sharded, const char* call, std::span<const StateSlice> targets, std::span<const StateSlice> given,
          std::string problems = "") {
  Pieces pieces;
  for (const StateSlice& slice : given) pieces.emplace(slice.name, &slice);
  bool complete = problems.empty();
  for (size_t i = 0; i < targets.size() && complete; ++i) problems += gap(pieces, targets[i]);
  agree(sharded, call, problems);
  for (const StateSlice& target : targets)
    for_each_piece(pieces, target.name, [&](const StateSlice& slice) {
      auto [begin, end] = overlap(target, slice);
      if (begin < end)
        copy_into(target.values.rows(begin - target.begin, end - target.begin),
                  slice.values.rows(begin - slice.begin, end - slice.begin));
    });
}

void load_parameters(const char* call, Sharded& sharded, std::span<const StateSlice> given, std::string problems = "") {
  sharded.settle(call);
  load(sharded, call, parts_of(sharded), given, std::move(problems));
  all_written(sharded);
}

std::vector<StateSlice> slices_of(const StateDict& state) {
  std::vector<StateSlice> slices;
  for (const auto& [name, tensor] : state)
    slices.push_back({name, tensor.shape(), 0, tensor.detach().view({tensor.numel()})});
  return slices;
}

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
    int64_t begin = flat.elements_of(i).first;
    copy_into(part.rows(begin, begin + values.numel()), values);
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

StateDict full_state_dict(Sharded& sharded, bool rank0_only) {
  check_replicas(sharded, "full_state_dict");
  sharded.settle("full_state_dict");
  bool wanted = !rank0_only || sharded.group().rank() == 0;
  StateDict state;
  TagScope owner(Category::other);
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) {
      Tensor whole = flat->whole("state_dict");
      for (const Slice& slice : flat->slices()) {
        if (!wanted) continue;
        Tensor copy = empty(slice.shape, {flat->dtype(), kCpu});
        copy_into(copy, whole.rows(slice.offset, slice.offset + slice.numel()));
        state[slice.name] = copy;
      }
    }
  return state;
}

StateSpecs state_specs(const Sharded& sharded) {
  StateSpecs specs;
  for (const auto& [name, where] : sharded.index())
    specs[name] = {where.flat->slices()[where.slice].shape, where.flat->dtype()};
  return specs;
}

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

void load_full_state_dict(Sharded& sharded, const StateDict& state) {
  StateCheck check(state);
  for (const auto& [name, spec] : state_specs(sharded)) check.expect(name, spec.shape, spec.dtype);
  load_parameters("load_full_state_dict", sharded, slices_of(state), check.faults());
}

std::vector<StateSlice> sharded_state_dict(Sharded& sharded) {
  sharded.settle("sharded_state_dict");
  return copies_of(parts_of(sharded));
}

void load_sharded_state_dict(Sharded& sharded, std::span<const StateSlice> pieces) {
  load_parameters("load_sharded_state_dict", sharded, pieces);
}

std::vector<StateSlice> sharded_optim_state_dict(optim::Optimizer& optimizer) {
  return copies_of(optimizer.state_slices());
}

void load_sharded_optim_state_dict(Sharded& sharded, optim::Optimizer& optimizer, std::span<const StateSlice> pieces) {
  sharded.settle("load_sharded_optim_state_dict");
  load(sharded, "load_sharded_optim_state_dict", optimizer.state_slices(), pieces);
}

void visit_pieces(Sharded& sharded, const VisitPiece& visit) {
  sharded.settle("visit_pieces");
  piece_by_piece(parts_of(sharded), Copy::out, visit);
}

void fill_pieces(Sharded& sharded, const VisitPiece& fill) {
  sharded.settle("fill_pieces");
  sharded.group().barrier({{"", "fill_pieces"}});  // nobody reads this rank's shard any more
  std::exception_ptr failure = failure_of([&] { piece_by_piece(parts_of(sharded), Copy::in, fill); });
  all_written(sharded);
  check_filled(sharded, "fill_pieces", failure);
}

void visit_optim_pieces(optim::Optimizer& optimizer, const VisitPiece& visit) {
  piece_by_piece(optimizer.state_slices(), Copy::out, visit);
}

void fill_optim_pieces(Sharded& sharded, optim::Optimizer& optimizer, const VisitPiece& fill) {
  sharded.settle("fill_optim_pieces");
  auto fill_all = [&] { piece_by_piece(optimizer.state_slices(), Copy::in, fill); };
  check_filled(sharded, "fill_optim_pieces", failure_of(fill_all));
}

// A rank that holds no part of a parameter does not count its steps.
std::map<std::string, int64_t> optim_steps(Sharded& sharded, const optim::Optimizer& optimizer) {
  dist::ProcessGroup* group = sharded.mesh().shard();
  std::map<std::string, int64_t> steps = optimizer.steps();
  if (!group) return steps;
  std::vector<int64_t> mine;
  for (const auto& [name, count] : steps) mine.push_back(count);
  auto n = int64_t(mine.size());
  Tensor all = empty({n * group->size()}, {DType::i64, kCpu});
  group->all_gather(all, from_vector(mine, {n}, {DType::i64, kCpu}), {{"", "optim_state_dict"}}).host_wait();
  std::vector<int64_t> counts = all.to_vector<int64_t>();
  size_t i = 0;
  for (auto& [name, count] : steps) {
    for (size_t rank = 0; rank < size_t(group->size()); ++rank) count = std::max(count, counts[rank * size_t(n) + i]);
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
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params())
      for (const std::string& kind : optimizer.state_names()) {
        auto has_state = [&](const Slice& slice) { return with_state.contains(slice.name); };
        if (std::ranges::none_of(flat->slices(), has_state)) continue;
        Tensor whole = gather_state(*flat, group, kind, mine);
        for (const Slice& slice : flat->slices()) {
          if (!wanted || !has_state(slice)) continue;
          Tensor copy = empty(slice.shape, {whole.dtype(), kCpu});
          copy_into(copy, whole.rows(slice.offset, slice.offset + slice.numel()));
          state[slice.name + "." + kind] = copy;
        }
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
