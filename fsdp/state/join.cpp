#include <shardgrad/fsdp/state/join.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/fsdp/setup/held_parts.h>

namespace shardgrad::fsdp {
namespace {

HeldParts::Mine held_of(std::span<const StateSlice> slices) {
  HeldParts::Mine held;
  for (const StateSlice& slice : slices)
    held[slice.name] = {slice.shape, slice.part, slice.values.dtype(), slice.begin, slice.values.numel()};
  return held;
}

// Whether this rank's copies of elements that were sent are the same.
bool same_copies(const StateSlice& own, const Held& here, const Held& sent, const Tensor& values) {
  int64_t begin = std::max(here.begin, sent.begin), end = std::min(here.begin + here.count, sent.begin + sent.count);
  if (!same_part(here, sent) || begin >= end) return true;
  Tensor mine = copy_on_host(own.values.rows(begin - here.begin, end - here.begin), {end - begin});
  Tensor theirs = values.rows(begin - sent.begin, end - sent.begin);
  return std::memcmp(mine.in().data, theirs.in().data, mine.bytes()) == 0;
}

// A tensor of which a rank has another copy than the one that was sent.
struct Difference {
  int64_t tensor = -1;
  int sender = 0;
};

void check_copies(const Difference& here, std::span<const StateSlice* const> mine, dist::ProcessGroup& ranks,
                  const char* call) {
  std::vector<int64_t> all = ranks.share<int64_t>({here.tensor, here.sender}, {"", call});
  for (int rank = 0; rank < ranks.size(); ++rank) {
    int64_t tensor = all[size_t(rank) * 2];
    SG_CHECK(tensor < 0, call, ": rank ", ranks.global_rank(rank), " and rank ",
             ranks.global_rank(int(all[size_t(rank) * 2 + 1])), " hold copies of '", mine[size_t(tensor)]->name,
             "' that are not the same. Something has changed it on one of them only, or their gradients differ: what ",
             "comes before a split product begins with parallel::copy_to_group");
  }
}

}  // namespace

StateDict join(std::span<const StateSlice> mine, dist::ProcessGroup& ranks, const char* call, bool wanted) {
  TagScope owner(Category::other);
  HeldParts held(held_of(mine), ranks, call);
  std::vector<const StateSlice*> by_name;
  for (const StateSlice& slice : mine) by_name.push_back(&slice);
  std::ranges::sort(by_name, {}, &StateSlice::name);
  StateDict state;
  Difference difference;
  for (size_t i = 0; i < by_name.size(); ++i) {
    const StateSlice& own = *by_name[i];
    const Held& here = held.of(i, ranks.rank());
    StateSlice whole{own.name, whole_shape(here.shape, here.part), 0, Tensor()};
    if (wanted) whole.values = empty({whole.shape.numel()}, {here.dtype, kCpu});
    for (int rank : held.cover(i)) {
      const Held& sent = held.of(i, rank);
      Tensor values =
          rank == ranks.rank() ? copy_on_host(own.values, {sent.count}) : empty({sent.count}, {sent.dtype, kCpu});
      ranks.broadcast(values, rank, {{"", call}}).host_wait();
      StateSlice piece{own.name, sent.shape, sent.begin, values, sent.part};
      if (wanted) copy_pieces({&whole, 1}, in_whole({&piece, 1}));
      bool copies = rank == ranks.rank() || same_copies(own, here, sent, values);
      if (difference.tensor < 0 && !copies) difference = {int64_t(i), rank};
    }
    if (wanted) state.emplace(own.name, whole.values.view(whole.shape));
  }
  check_copies(difference, by_name, ranks, call);
  return state;
}

void check_parts(std::span<const StateSlice> mine, dist::ProcessGroup& ranks, const char* call) {
  HeldParts(held_of(mine), ranks, call);
}

}  // namespace shardgrad::fsdp
