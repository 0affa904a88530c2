// Whole parameters out of shards and back: the summon scope and full state dicts.

#include <algorithm>
#include <exception>

#include <shardgrad/core/rng.h>
#include <shardgrad/core/state_check.h>
#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {
namespace {

void check_idle(const Sharded& sharded, const char* what) {
  SG_CHECK(!in_backward(), what, ": called inside backward; call it between steps");
  for (const auto& unit : sharded.units())
    SG_CHECK(unit->state() != UnitState::gathering, what, ": unit '", unit->name(),
             "' is being gathered; call it between steps");
}

// Edits must agree, or each rank would keep its own part of a different tensor.
void check_equal_edits(const Sharded& sharded) {
  dist::ProcessGroup& group = sharded.group();
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) {
      Tensor host = flat->full().to(kCpu);
      uint64_t hash = hash_of({static_cast<const char*>(host.in().data), host.bytes()});
      Tensor all = empty({group.size()}, {DType::i64, kCpu});
      Tensor mine = from_vector<int64_t>({int64_t(hash)}, {1}, {DType::i64, kCpu});
      group.all_gather(all, mine, {{unit->name(), "summon"}}).host_wait();
      std::vector<int64_t> hashes = all.to_vector<int64_t>();
      bool equal = std::ranges::all_of(hashes, [&](int64_t h) { return h == hashes[0]; });
      SG_CHECK(equal, "SummonFullParams: the ranks edited unit '", unit->name(),
               "' differently; nothing of it was written back. Make the same edit on every rank");
    }
}

}  // namespace

SummonFullParams::SummonFullParams(Sharded& sharded, bool write_back)
    : sharded_(sharded), write_back_(write_back), exceptions_(std::uncaught_exceptions()) {
  check_idle(sharded, "SummonFullParams");
  for (const auto& unit : sharded.units()) unit->unshard("summon");
  for (const auto& unit : sharded.units()) unit->wait();
}

SummonFullParams::~SummonFullParams() noexcept(false) {
  bool unwinding = std::uncaught_exceptions() > exceptions_;
  auto give_back = [&] {
    for (const auto& unit : sharded_.units()) unit->reshard();
  };
  try {
    if (write_back_ && !unwinding) {
      check_equal_edits(sharded_);
      for (const auto& unit : sharded_.units())
        for (const auto& flat : unit->flat_params()) flat->write_back();
    }
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
}

std::map<std::string, Tensor> full_state_dict(Sharded& sharded, bool rank0_only) {
  check_idle(sharded, "full_state_dict");
  bool wanted = !rank0_only || sharded.group().rank() == 0;
  std::map<std::string, Tensor> state;
  TagScope owner(Category::other);
  for (const auto& unit : sharded.units()) {
    bool was_sharded = unit->needs_gather();
    unit->unshard("state_dict");
    unit->wait();
    for (const auto& flat : unit->flat_params())
      for (const Slice& slice : flat->slices()) {
        if (!wanted) continue;
        Tensor copy = empty(slice.shape, {flat->dtype(), kCpu});
        copy_into(copy, flat->full().rows(slice.offset, slice.offset + slice.numel()));
        state[slice.name] = copy;
      }
    if (was_sharded) unit->reshard();
  }
  return state;
}

void load_full_state_dict(Sharded& sharded, const std::map<std::string, Tensor>& state) {
  check_idle(sharded, "load_full_state_dict");
  StateCheck check(state);
  for (const auto& [name, where] : sharded.index())
    check.expect(name, where.flat->slices()[where.slice].shape, where.flat->dtype());
  std::string faults = check.faults();
  SG_CHECK(faults.empty(), "load_full_state_dict: the state does not fit the model; nothing was changed:", faults);
  for (const auto& [name, where] : sharded.index()) {
    FlatParam& flat = *where.flat;
    flat.wait_for_shard();
    const Slice& slice = flat.slices()[where.slice];
    int64_t begin = flat.shard_begin(), end = begin + flat.shard().numel();
    int64_t first = std::max(begin, slice.offset), last = std::min(end, slice.offset + slice.numel());
    if (first >= last) continue;
    Tensor source = state.at(name).view({slice.numel()}).rows(first - slice.offset, last - slice.offset);
    copy_into(flat.shard().rows(first - begin, last - begin), source);
  }
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) flat->shard_written();
}

}  // namespace shardgrad::fsdp
