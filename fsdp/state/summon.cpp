#include <algorithm>
#include <exception>

#include <shardgrad/core/rng.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {
namespace {

// Edits must agree, or each rank would keep its own part of a different tensor.
void check_equal_edits(const Sharded& sharded) {
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) {
      if (!std::ranges::count(sharded.flats(), flat.get())) continue;  // of the model around this part
      Tensor host = flat->summoned().to(kCpu);
      auto hash = int64_t(hash_of({static_cast<const char*>(host.in().data), host.bytes()}));
      std::vector<int64_t> all = sharded.group().share<int64_t>({hash}, {unit->name(), "summon"});
      SG_CHECK(std::ranges::count(all, hash) == std::ssize(all), "SummonFullParams: the ranks edited unit '",
               unit->name(), "' differently; nothing was written back. Make the same edit on every rank");
    }
}

}  // namespace

SummonFullParams::SummonFullParams(Sharded& sharded, bool write_back)
    : sharded_(sharded), write_back_(write_back), exceptions_(std::uncaught_exceptions()) {
  sharded.settle("SummonFullParams");
  sharded.schedule().set_summoned(true);
  try {
    for (FlatParam* flat : sharded.flats()) flat->summon();
  } catch (...) {
    dismiss();
    throw;
  }
}

void SummonFullParams::dismiss() {
  for (FlatParam* flat : sharded_.flats()) flat->dismiss();
  sharded_.schedule().set_summoned(false);
}

SummonFullParams::~SummonFullParams() noexcept(false) {
  struct AtEnd {
    SummonFullParams& scope;
    ~AtEnd() { scope.dismiss(); }
  } at_end{*this};
  if (!write_back_ || std::uncaught_exceptions() > exceptions_) return;
  check_equal_edits(sharded_);
  dist::together(sharded_.group(), {"", "summon"}, [&] {
    for (const FlatParam* flat : sharded_.flats()) flat->check_not_leased();
  });
  for (FlatParam* flat : sharded_.flats()) flat->write_back();
}

}  // namespace shardgrad::fsdp
