#include <shardgrad/fsdp/state/pieces.h>

#include <algorithm>

#include <shardgrad/dist/group/together.h>

namespace shardgrad::fsdp {
namespace {

Tensor copy_on_host(const Tensor& values, const Shape& shape) {
  Tensor copy = empty(shape, {values.dtype(), kCpu});
  copy_into(copy, values);
  return copy;
}

struct Overlap {
  int64_t begin, end;
};
Overlap overlap(const StatePlace& a, const StateSlice& b) {
  return {std::max(a.begin, b.begin), std::min(a.begin + a.count, b.begin + b.values.numel())};
}
StatePlace place_of(const StateSlice& slice) {
  return {slice.name, slice.shape, slice.begin, slice.values.numel(), slice.values.dtype()};
}

bool on_some_rank(Sharded& sharded, const char* call, bool here) {
  Tensor ranks = from_vector<int64_t>({here}, {1}, {DType::i64, kCpu});
  sharded.group().all_reduce(ranks, {{"", call}}).host_wait();
  return ranks.item() != 0;
}

using Pieces = std::multimap<std::string_view, const StateSlice*>;

Pieces by_name(std::span<const StateSlice> slices) {
  Pieces pieces;
  for (const StateSlice& slice : slices) pieces.emplace(slice.name, &slice);
  return pieces;
}

template <class Visit> void for_each_piece(const Pieces& pieces, const std::string& name, Visit&& visit) {
  for (auto [it, end] = pieces.equal_range(name); it != end; ++it) visit(*it->second);
}

// Whether it has values that can be copied, at a place that its tensor has.
bool is_sound(const StateSlice& slice) {
  const Tensor& values = slice.values;
  return values.defined() && values.ndim() == 1 && values.device() != kMeta &&
         (values.numel() == 0 || values.storage()->resident()) && slice.begin >= 0 &&
         slice.begin + values.numel() <= slice.shape.numel();
}

// What the pieces lack of `target`, as a line; empty when they have all of it, and nothing can fail any more.
std::string gap(const Pieces& pieces, const StatePlace& target) {
  if (!pieces.contains(target.name)) return concat("\n  missing: '", target.name, "'");
  bool sound = true, fits = true;
  for_each_piece(pieces, target.name, [&](const StateSlice& slice) {
    sound = sound && is_sound(slice);
    fits = fits && sound && slice.shape == target.shape && slice.values.dtype() == target.dtype;
  });
  if (!sound)
    return concat("\n  '", target.name, "': a piece has no values in memory, more than one dimension, or a place ",
                  "outside its tensor");
  if (!fits) return concat("\n  '", target.name, "': not ", target.dtype, target.shape);
  int64_t reached = target.begin;  // everything before it is covered
  for (int64_t before = -1; before < reached;) {
    before = reached;
    for_each_piece(pieces, target.name, [&](const StateSlice& slice) {
      if (slice.begin <= reached) reached = std::max(reached, overlap(target, slice).end);
    });
  }
  if (reached == target.begin + target.count) return "";
  return concat("\n  '", target.name, "': element ", reached, " is in no piece");
}

}  // namespace

void check_all_whole(const Sharded& sharded) {
  for (const auto& [name, where] : sharded.index()) {
    const Slice& slice = where.flat->slices()[where.slice];
    check_whole(name, slice.shape, slice.part);
  }
}

std::vector<StateSlice> parts_of(Sharded& sharded) {
  check_all_whole(sharded);
  std::vector<StateSlice> parts;
  for (const auto& [name, where] : sharded.index()) {
    where.flat->wait_for_shard();
    Owned mine = where.flat->owned(where.slice);
    if (mine.count == 0) continue;
    Tensor values = where.flat->shard().rows(mine.at, mine.at + mine.count);
    parts.push_back({name, where.flat->slices()[where.slice].shape, mine.in_slice, values});
  }
  return parts;
}

std::vector<StatePlace> places_of(std::span<const StateSlice> slices) {
  std::vector<StatePlace> places;
  for (const StateSlice& slice : slices) places.push_back(place_of(slice));
  return places;
}

std::vector<StateSlice> slices_of(const StateDict& state) {
  std::vector<StateSlice> slices;
  for (const auto& [name, tensor] : state)
    slices.push_back({name, tensor.shape(), 0, tensor.detach().view({tensor.numel()})});
  return slices;
}

std::vector<StateSlice> copies_of(std::vector<StateSlice> slices) {
  TagScope owner(Category::other);
  for (StateSlice& slice : slices) slice.values = copy_on_host(slice.values, slice.values.shape());
  return slices;
}

void add_copies(StateDict& state, const Named& named, const Tensor& whole, const std::string& suffix) {
  for (const auto& [i, name] : named.slices) {
    const Slice& slice = named.flat->slices()[i];
    state[name + suffix] = copy_on_host(whole.rows(slice.offset, slice.offset + slice.numel()), slice.shape);
  }
}

void piece_by_piece(std::span<const StateSlice> slices, Copy copy, const VisitPiece& call) {
  TagScope owner(Category::other);
  for (const StateSlice& slice : slices) {
    int64_t most = kPieceBytes / int64_t(size_of(slice.values.dtype())), count = slice.values.numel();
    for (int64_t begin = 0; begin < count; begin += most) {
      Tensor part = slice.values.rows(begin, std::min(begin + most, count));
      Tensor values = copy == Copy::out ? copy_on_host(part, part.shape()) : empty(part.shape(), {part.dtype(), kCpu});
      call({slice.name, slice.shape, slice.begin + begin, values});
      if (copy == Copy::in) copy_into(part, values);
    }
  }
}

void check_fit(Sharded& sharded, const char* call, std::span<const StatePlace> places,
               std::span<const StateSlice> given, std::string problems) {
  Pieces pieces = by_name(given);
  bool complete = problems.empty();
  for (size_t i = 0; i < places.size() && complete; ++i) problems += gap(pieces, places[i]);
  bool faulty = on_some_rank(sharded, call, !problems.empty());
  SG_CHECK(problems.empty(), call, ": the state does not fit; nothing was changed:", problems);
  SG_CHECK(!faulty, call, ": the state does not fit on another rank; nothing was changed");
}

void copy_pieces(std::span<const StateSlice> targets, std::span<const StateSlice> given) {
  Pieces pieces = by_name(given);
  for (const StateSlice& target : targets)
    for_each_piece(pieces, target.name, [&](const StateSlice& slice) {
      auto [begin, end] = overlap(place_of(target), slice);
      if (begin < end)
        copy_into(target.values.rows(begin - target.begin, end - target.begin),
                  slice.values.rows(begin - slice.begin, end - slice.begin));
    });
}

void fill_on_all(Sharded& sharded, const char* call, const std::function<void()>& fill) {
  dist::together(sharded.group(), {"", call}, fill, concat("; ", call, " has filled the state in part"));
}

}  // namespace shardgrad::fsdp
