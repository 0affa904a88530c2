#include <shardgrad/fsdp/setup/held_parts.h>

#include <algorithm>

#include <shardgrad/core/rng.h>
#include <shardgrad/dist/group/together.h>

namespace shardgrad::fsdp {
namespace {

// Of a Held: the number of dimensions, their extents, and six more.
constexpr size_t kNumbers = 1 + kMaxDims + 6;

void add_numbers(std::vector<int64_t>& numbers, const Held& held) {
  numbers.push_back(held.shape.ndim());
  for (int d = 0; d < kMaxDims; ++d) numbers.push_back(d < held.shape.ndim() ? held.shape[d] : 0);
  for (int64_t number :
       {int64_t(held.part.dim), held.part.begin, held.part.extent, int64_t(held.dtype), held.begin, held.count})
    numbers.push_back(number);
}

Held held_of(const int64_t* numbers) {
  const int64_t* rest = numbers + 1 + kMaxDims;
  Held held{Shape(std::span(numbers + 1, size_t(numbers[0]))),
            {int(rest[0]), rest[1], rest[2]},
            DType(rest[3]),
            rest[4],
            rest[5]};
  if (is_whole(held.shape, held.part)) held.part = {};
  return held;
}

struct Range {
  int64_t begin, end;
  int rank;  // the first that has it
};

// Along the dimension that the tensor is split by.
Range range_of(const Held& held, int dim, int rank) {
  if (held.shape.ndim() == 0) return {0, 1, rank};
  int64_t begin = held.part.extent ? held.part.begin : 0;
  return {begin, begin + held.shape[dim], rank};
}

std::string text_of(const Range& range) { return concat('[', range.begin, ", ", range.end, ')'); }

// What the ranges lack of [0, extent), or have twice; empty when they are all of it, one after the other.
std::string gap_or_overlap(std::span<const Range> ranges, int64_t extent) {
  int64_t reached = 0;
  for (const Range& range : ranges) {
    if (range.begin > reached) break;
    if (range.begin < reached)
      return concat("more than one rank has ", text_of({range.begin, std::min(reached, range.end), 0}));
    reached = range.end;
  }
  if (reached == extent) return "";
  auto next = std::ranges::find_if(ranges, [&](const Range& range) { return range.begin > reached; });
  return concat("no rank has ", text_of({reached, next == ranges.end() ? extent : next->begin, 0}));
}

}  // namespace

// Each rank says what it has and rank 0 has not, or the other way round.
void check_same_names(const std::set<std::string>& mine, dist::ProcessGroup& ranks, const char* call) {
  std::string names;
  for (const std::string& name : mine) names += name + '\n';
  std::vector<int64_t> hashes = ranks.share<int64_t>({int64_t(hash_of(names))}, {"", call});
  if (std::ranges::count(hashes, hashes[0]) == ranks.size()) return;
  std::istringstream lines(dist::same_text(ranks, {"", call}, names));
  dist::together(ranks, {"", call}, [&] {
    std::set<std::string> more = mine;
    for (std::string name; std::getline(lines, name); more.erase(name))
      SG_CHECK(mine.contains(name), call, ": there is no '", name, "', which rank ", ranks.global_rank(0), " has");
    SG_CHECK(more.empty(), call, ": there is '", *more.begin(), "', which rank ", ranks.global_rank(0), " has not");
  });
}

HeldParts::HeldParts(const Mine& mine, dist::ProcessGroup& ranks, const char* call)
    : ranks_(ranks), count_(mine.size()), covers_(mine.size()) {
  dist::together(ranks, {"", call}, [&] {
    for (const auto& [name, held] : mine) check_part(concat(call, ": '", name, "'"), held.shape, held.part);
  });
  std::set<std::string> names;
  for (const auto& [name, held] : mine) names.insert(name);
  check_same_names(names, ranks, call);
  std::vector<int64_t> numbers;
  for (const auto& [name, held] : mine) add_numbers(numbers, held);
  if (numbers.empty()) return;
  std::vector<int64_t> all = ranks.share(numbers, {"", call});
  for (size_t at = 0; at < all.size(); at += kNumbers) held_.push_back(held_of(&all[at]));
  std::string faults;
  size_t i = 0;
  for (const auto& [name, held] : mine) {
    std::string found = fault(i++);
    if (!found.empty()) faults += concat("\n  '", name, "' ", found);
  }
  SG_CHECK(faults.empty(), call, ": what the ranks hold does not make whole tensors:", faults);
}

// Nothing depends on which rank this is, so all ranks find the same.
std::string HeldParts::fault(size_t i) {
  auto whole_of = [&](int rank) { return whole_shape(of(i, rank).shape, of(i, rank).part); };
  int split = 0;  // a rank that has a part of it
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (of(i, rank).part.extent > 0) split = rank;
    if (whole_of(rank) == whole_of(0) && of(i, rank).dtype == of(i, 0).dtype) continue;
    return concat("is of ", of(i, 0).dtype, whole_of(0), " on rank ", ranks_.global_rank(0), " and of ",
                  of(i, rank).dtype, whole_of(rank), " on rank ", ranks_.global_rank(rank));
  }
  int dim = of(i, split).part.dim;
  std::vector<Range> ranges;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Held& held = of(i, rank);
    if (held.part.extent > 0 && held.part.dim != dim)
      return concat("is split along dimension ", dim, " on rank ", ranks_.global_rank(split), " and along dimension ",
                    held.part.dim, " on rank ", ranks_.global_rank(rank));
    Range range = range_of(held, dim, rank);
    auto same = [&](const Range& other) { return other.begin == range.begin && other.end == range.end; };
    if (range.begin < range.end && std::ranges::none_of(ranges, same)) ranges.push_back(range);
  }
  std::ranges::stable_sort(ranges, {}, &Range::begin);
  Shape whole = whole_of(0);
  std::string found = gap_or_overlap(ranges, whole.ndim() ? whole[dim] : 1), list;
  for (const Range& range : ranges) list += concat(", rank ", ranks_.global_rank(range.rank), " has ", text_of(range));
  if (!found.empty()) return concat(whole, ": along dimension ", dim, ' ', found, list);
  for (const Range& range : ranges) found += cover_part(i, range.rank);
  return found;
}

// Adds ranks that together have the part that `holder` has.
std::string HeldParts::cover_part(size_t i, int holder) {
  int64_t reached = 0, numel = of(i, holder).shape.numel();
  while (reached < numel) {
    int64_t furthest = reached;
    int best = 0;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Held& held = of(i, rank);
      if (!same_part(held, of(i, holder)) || held.begin > reached || held.begin + held.count <= furthest) continue;
      furthest = held.begin + held.count;
      best = rank;
    }
    if (furthest == reached)
      return concat("has element ", reached, " of the part of rank ", ranks_.global_rank(holder),
                    " on none of these ranks; give all that the model is sharded over");
    covers_[i].push_back(best);
    reached = furthest;
  }
  return "";
}

}  // namespace shardgrad::fsdp
