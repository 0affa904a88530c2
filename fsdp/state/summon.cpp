#include <algorithm>
#include <exception>
#include <map>

#include <shardgrad/core/rng.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {
namespace {

constexpr const char* kRemedy = "nothing was written back. Make the same edit on every rank";

std::vector<FlatParam*> flats_of(const Sharded& sharded, const Unit& unit) {
  std::vector<FlatParam*> own;  // not those of the model around this part
  for (const auto& flat : unit.flat_params())
    if (std::ranges::count(sharded.flats(), flat.get())) own.push_back(flat.get());
  return own;
}

int64_t hash_of_bytes(const void* data, size_t bytes) {
  return int64_t(hash_of({static_cast<const char*>(data), bytes}));
}

// A hash of what each slice is of, and one of its values.
void add_slices(std::vector<int64_t>& edits, const FlatParam& flat, const Tensor& values) {
  for (const Slice& slice : flat.slices()) {
    size_t element = size_of(values.dtype());
    const auto* first = static_cast<const std::byte*>(values.in().data) + size_t(slice.offset) * element;
    edits.push_back(int64_t(
        hash_of(concat(slice.name, slice.shape, slice.part.dim, ' ', slice.part.begin, ' ', slice.part.extent))));
    edits.push_back(hash_of_bytes(first, size_t(slice.numel()) * element));
  }
}

// They must agree, or each rank would keep its own part of a different tensor. Returns pairs of hashes.
std::vector<int64_t> equal_edits(const Sharded& sharded) {
  std::vector<int64_t> edits;
  for (const auto& unit : sharded.units())
    for (const FlatParam* flat : flats_of(sharded, *unit)) {
      Tensor host = flat->summoned().to(kCpu);
      int64_t hash = hash_of_bytes(host.in().data, host.bytes());
      std::vector<int64_t> all = sharded.group().share<int64_t>({hash}, {unit->name(), "summon"});
      SG_CHECK(std::ranges::count(all, hash) == std::ssize(all), "SummonFullParams: the ranks edited unit '",
               unit->name(), "' differently; ", kRemedy);
      if (sharded.on_mesh()) add_slices(edits, *flat, host);
    }
  return edits;
}

// Ranks along the other axes of a mesh hold copies of some parameters, and other parts of larger ones, or other units.
void check_copies(const Sharded& sharded, std::vector<int64_t> mine) {
  if (!sharded.on_mesh()) return;
  dist::ProcessGroup& ranks = sharded.holders();
  size_t count = mine.size() / 2;
  std::vector<int64_t> counts = ranks.share<int64_t>({int64_t(count)}, {"", "summon"});
  mine.resize(2 * size_t(*std::ranges::max_element(counts)));
  std::vector<int64_t> all = ranks.share(mine, {"", "summon"});
  std::map<int64_t, int64_t> values_at;
  for (size_t rank = 0; rank < counts.size(); ++rank)
    for (size_t i = rank * mine.size(); i < rank * mine.size() + 2 * size_t(counts[rank]); i += 2)
      SG_CHECK(values_at.emplace(all[i], all[i + 1]).first->second == all[i + 1], "SummonFullParams: rank ",
               ranks.global_rank(int(rank)),
               " and another that holds the same parameter, along another axis of the mesh, edited it differently; ",
               kRemedy);
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
  std::vector<int64_t> edits;
  dist::together(sharded_.holders(), {"", "summon"}, [&] {
    edits = equal_edits(sharded_);
    for (const FlatParam* flat : sharded_.flats()) flat->check_not_leased();
  });
  check_copies(sharded_, std::move(edits));
  for (FlatParam* flat : sharded_.flats()) flat->write_back();
}

}  // namespace shardgrad::fsdp
