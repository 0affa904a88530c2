#include <shardgrad/fsdp/state/pieces.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/part.h>
#include <shardgrad/dist/group/together.h>

namespace shardgrad::fsdp {
namespace {

StatePlace place_of(const StateSlice& slice) {
  return {slice.name, slice.shape, slice.begin, slice.values.numel(), slice.values.dtype(), slice.part};
}

bool on_some_rank(dist::ProcessGroup& ranks, const char* call, bool here) {
  Tensor count = from_vector<int64_t>({here}, {1}, {DType::i64, kCpu});
  ranks.all_reduce(count, {{"", call}}).host_wait();
  return count.item() != 0;
}

// Whether it has values that can be copied, at a place that its tensor has.
bool is_sound(const StateSlice& slice) {
  const Tensor& values = slice.values;
  return values.defined() && values.ndim() == 1 && has_values(values.device()) &&
         (values.numel() == 0 || values.storage()->resident()) && slice.begin >= 0 &&
         slice.begin + values.numel() <= slice.shape.numel();
}

// Those of one name, by where they begin. A part along a later dimension makes thousands of them.
struct Pieces {
  std::vector<const StateSlice*> slices;
  std::vector<int64_t> reached;  // by the first i + 1 of them; empty where one is not sound
  bool alike = true;             // all of the first one's shape and dtype

  void sort() {
    std::ranges::stable_sort(slices, {}, &StateSlice::begin);
    if (!std::ranges::all_of(slices, [](const StateSlice* slice) { return is_sound(*slice); })) return;
    for (const StateSlice* slice : slices) {
      reached.push_back(std::max(reached.empty() ? 0 : reached.back(), slice->begin + slice->values.numel()));
      alike = alike && slice->shape == slices[0]->shape && slice->values.dtype() == slices[0]->values.dtype();
    }
  }
  bool fit(const StatePlace& target) const {
    return alike && slices[0]->shape == target.shape && slices[0]->values.dtype() == target.dtype;
  }
  // Calls visit(slice, begin, end) for what they have of the target's elements, in order of where they begin.
  template <class Visit> void for_each_overlap(const StatePlace& target, Visit&& visit) const {
    int64_t target_end = target.begin + target.count;
    for (auto i = size_t(std::ranges::upper_bound(reached, target.begin) - reached.begin());
         i < slices.size() && slices[i]->begin < target_end; ++i) {
      int64_t begin = std::max(target.begin, slices[i]->begin);
      int64_t end = std::min(target_end, slices[i]->begin + slices[i]->values.numel());
      if (begin < end) visit(*slices[i], begin, end);
    }
  }
};

std::map<std::string_view, Pieces> by_name(std::span<const StateSlice> slices) {
  std::map<std::string_view, Pieces> all;
  for (const StateSlice& slice : slices) all[slice.name].slices.push_back(&slice);
  for (auto& [name, pieces] : all) pieces.sort();
  return all;
}

// Where two pieces have different values in elements [begin, end) of their tensor, as a line.
std::string difference(const StateSlice& one, const StateSlice& other, int64_t begin, int64_t end) {
  auto part = [](const StateSlice& slice, int64_t from, int64_t to) {
    return slice.values.rows(from - slice.begin, to - slice.begin);
  };
  auto differ = [&](int64_t from, int64_t to) { return values_differ(part(one, from, to), part(other, from, to)); };
  if (begin >= end || !differ(begin, end)) return "";
  while (end - begin > 1) {
    int64_t middle = begin + (end - begin) / 2;
    if (differ(begin, middle))
      end = middle;
    else
      begin = middle;
  }
  double a = part(one, begin, end).item(), b = part(other, begin, end).item();
  return concat("\n  '", one.name, "': element ", begin, " is ", a, " in one piece and ", b, " in another, ",
                std::abs(a - b), " apart: they are of copies that were not the same any more");
}

// Where pieces have different values of an element of `target`, as a line. To compare each with the one that reaches
// farthest of those before it is enough: that one is the same as they are, and overlaps wherever one of them does.
std::string contradiction(const Pieces& pieces, const StatePlace& target) {
  std::string line;
  const StateSlice* farthest = nullptr;
  int64_t reached = target.begin;
  pieces.for_each_overlap(target, [&](const StateSlice& slice, int64_t begin, int64_t end) {
    if (farthest && line.empty()) line = difference(*farthest, slice, begin, std::min(end, reached));
    if (end > reached) farthest = &slice, reached = end;
  });
  return line;
}

// What the pieces lack of `target` or contradict each other about, as a line; empty when they have all of it, and
// nothing can fail any more.
std::string gap(const std::map<std::string_view, Pieces>& given, const StatePlace& target) {
  auto found = given.find(target.name);
  if (found == given.end()) return concat("\n  missing: '", target.name, "'");
  const Pieces& pieces = found->second;
  if (pieces.reached.empty())
    return concat("\n  '", target.name, "': a piece has no values in memory, more than one dimension, or a place ",
                  "outside its tensor");
  if (!pieces.fit(target)) return concat("\n  '", target.name, "': not ", target.dtype, target.shape);
  int64_t reached = target.begin;  // everything before it is covered
  pieces.for_each_overlap(target, [&](const StateSlice&, int64_t begin, int64_t end) {
    if (begin <= reached) reached = std::max(reached, end);
  });
  if (reached == target.begin + target.count) return contradiction(pieces, target);
  return concat("\n  '", target.name, "': element ", reached, " is in no piece");
}

int64_t count_of(const StateSlice& slice) { return slice.values.numel(); }
int64_t count_of(const StatePlace& place) { return place.count; }

template <class Slices> Slices all_in_whole(const auto& slices, const auto& cut) {
  Slices all;
  for (const auto& slice : slices)
    for (const PartRun& run : runs_of(slice.shape, slice.part, slice.begin, count_of(slice))) {
      all.push_back(slice);
      all.back().shape = whole_shape(slice.shape, slice.part);
      all.back().begin = run.in_whole;
      all.back().part = {};
      cut(all.back(), run.in_part - slice.begin, run.count);
    }
  return all;
}

}  // namespace

Tensor copy_on_host(const Tensor& values, const Shape& shape) {
  Tensor copy = empty(shape, {values.dtype(), kCpu});
  copy_into(copy.view(values.shape()), values);
  return copy;
}

void check_joined(const Sharded& sharded) {
  if (sharded.on_mesh()) return;
  for (const auto& [name, where] : sharded.index()) {
    const Slice& slice = where.flat->slices()[where.slice];
    check_whole(name, slice.shape, slice.part);
  }
  for (const NamedParameter& left : sharded.left_out()) check_whole(left.name, left.tensor.shape(), left.part);
}

std::vector<StateSlice> shard_slices(Sharded& sharded) {
  check_joined(sharded);
  std::vector<StateSlice> slices;
  for (const auto& [name, where] : sharded.index()) {
    where.flat->wait_for_shard();
    const Slice& slice = where.flat->slices()[where.slice];
    Owned mine = where.flat->owned(where.slice);
    Tensor values = where.flat->shard().rows(mine.at, mine.at + mine.count);
    slices.push_back({name, slice.shape, mine.count > 0 ? mine.in_slice : 0, values, slice.part});
  }
  return slices;
}

std::vector<StateSlice> slices_of(std::span<const NamedParameter> parameters) {
  std::vector<StateSlice> slices;
  for (const NamedParameter& parameter : parameters) {
    const Tensor& tensor = parameter.tensor;
    slices.push_back({parameter.name, tensor.shape(), 0, tensor.detach().view({tensor.numel()}), parameter.part});
  }
  return slices;
}

std::vector<StateSlice> in_whole(std::span<const StateSlice> slices) {
  return all_in_whole<std::vector<StateSlice>>(slices, [](StateSlice& slice, int64_t begin, int64_t count) {
    slice.values = slice.values.rows(begin, begin + count);
  });
}

std::vector<StatePlace> in_whole(std::span<const StatePlace> places) {
  return all_in_whole<std::vector<StatePlace>>(places,
                                               [](StatePlace& place, int64_t, int64_t count) { place.count = count; });
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

void check_fit(dist::ProcessGroup& ranks, const char* call, std::span<const StatePlace> places,
               std::span<const StateSlice> given, std::string problems) {
  auto pieces = by_name(given);
  bool complete = problems.empty();
  std::set<std::string_view> faulty_names;  // each is told once, however many places it has
  for (size_t i = 0; i < places.size() && complete; ++i) {
    if (faulty_names.contains(places[i].name)) continue;
    std::string fault = gap(pieces, places[i]);
    if (!fault.empty()) faulty_names.insert(places[i].name);
    problems += fault;
  }
  bool faulty = on_some_rank(ranks, call, !problems.empty());
  SG_CHECK(problems.empty(), call, ": the state does not fit; nothing was changed:", problems);
  SG_CHECK(!faulty, call, ": the state does not fit on another rank; nothing was changed");
}

std::string unknown_in(std::span<const StateSlice> pieces, const std::set<std::string>& names) {
  std::set<std::string_view> unknown;
  for (const StateSlice& piece : pieces)
    if (!names.contains(piece.name)) unknown.insert(piece.name);
  std::string lines;
  for (std::string_view name : unknown) lines += concat("\n  unknown: '", name, "'");
  return lines;
}

void copy_pieces(std::span<const StateSlice> targets, std::span<const StateSlice> given) {
  auto pieces = by_name(given);
  for (const StateSlice& target : targets)
    pieces.at(target.name).for_each_overlap(place_of(target), [&](const StateSlice& slice, int64_t begin, int64_t end) {
      copy_into(target.values.rows(begin - target.begin, end - target.begin),
                slice.values.rows(begin - slice.begin, end - slice.begin));
    });
}

void fill_on_all(dist::ProcessGroup& ranks, const char* call, const std::function<void()>& fill) {
  dist::together(ranks, {"", call}, fill, concat("; ", call, " has filled the state in part"));
}

}  // namespace shardgrad::fsdp
