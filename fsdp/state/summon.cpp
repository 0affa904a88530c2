#include <algorithm>
#include <exception>

#include <shardgrad/core/rng.h>
#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {
namespace {

// Edits must agree, or each rank would keep its own part of a different tensor.
void check_equal_edits(const Sharded& sharded) {
  dist::ProcessGroup& group = sharded.group();
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) {
      Tensor host = flat->summoned().to(kCpu);
      uint64_t hash = hash_of({static_cast<const char*>(host.in().data), host.bytes()});
      Tensor all = empty({group.size()}, {DType::i64, kCpu});
      Tensor mine = from_vector<int64_t>({int64_t(hash)}, {1}, {DType::i64, kCpu});
      group.all_gather(all, mine, {{unit->name(), "summon"}}).host_wait();
      std::vector<int64_t> hashes = all.to_vector<int64_t>();
      bool equal = std::ranges::all_of(hashes, [&](int64_t h) { return h == hashes[0]; });
      SG_CHECK(equal, "SummonFullParams: the ranks edited unit '", unit->name(),
               "' differently; nothing was written back. Make the same edit on every rank");
    }
}

template <class Do> void for_each_flat(Sharded& sharded, Do&& action) {
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) action(*flat);
}

}  // namespace

SummonFullParams::SummonFullParams(Sharded& sharded, bool write_back)
    : sharded_(sharded), write_back_(write_back), exceptions_(std::uncaught_exceptions()) {
  sharded.settle("SummonFullParams");
  sharded.schedule_.set_summoned(true);
  try {
    for_each_flat(sharded, [](FlatParam& flat) { flat.summon(); });
  } catch (...) {
    dismiss();
    throw;
  }
}

void SummonFullParams::dismiss() {
  for_each_flat(sharded_, [](FlatParam& flat) { flat.dismiss(); });
  sharded_.schedule_.set_summoned(false);
}

SummonFullParams::~SummonFullParams() noexcept(false) {
  struct AtEnd {
    SummonFullParams& scope;
    ~AtEnd() { scope.dismiss(); }
  } at_end{*this};
  if (!write_back_ || std::uncaught_exceptions() > exceptions_) return;
  check_equal_edits(sharded_);
  for_each_flat(sharded_, [](FlatParam& flat) { flat.write_back(); });
}

}  // namespace shardgrad::fsdp
