#include <shardgrad/dist/transports/two_level/exchange.h>

#include <algorithm>
#include <cstring>
#include <map>

#include <shardgrad/core/context.h>

namespace shardgrad::dist::two_level {
namespace {

// In ascending order.
std::vector<Subtree> parts_of(const RankMap& map, Exchange::What what) {
  if (what == Exchange::What::sums) return subtrees_of(map);
  std::vector<Subtree> ranks;
  for (int rank = 0; rank < map.world_size(); ++rank) ranks.push_back({rank, rank + 1, 0});
  return ranks;
}

/// The most parts of other machines that a rank of a machine of `own` ranks carries.
int most_carried(const RankMap& map, int own) {
  int most = -1;  // its own machine's
  for (int machine = 0; machine < map.node_count(); ++machine) most += (map.local_size(machine) + own - 1) / own;
  return most;
}

/// Elements of a part whose values fit into a box, when a machine makes `widths` bytes of values per element.
int64_t elements_in_a_box(const RankMap& map, const std::vector<size_t>& widths, size_t inbox) {
  std::map<int, size_t> carried;  // by the number of ranks of a machine
  size_t most = inbox;
  for (int machine = 0; machine < map.node_count(); ++machine) {
    auto [at, is_new] = carried.try_emplace(map.local_size(machine));
    if (is_new) at->second = size_t(most_carried(map, at->first));
    most = std::max(most, widths[size_t(machine)] * at->second);
  }
  return std::max(int64_t(64), int64_t(kBoxBytes / most / 64 * 64));
}

/// Bytes [from, to) of a part, as far as it goes.
struct Range {
  size_t begin, end;
};
Range range_of(Cut cut, int part, size_t from, size_t to) {
  return {std::min(cut.length(part), from), std::min(cut.length(part), to)};
}

}  // namespace

Exchange::Exchange(const RankMap& map, int rank, DType dtype, What what)
    : map_(map), rank_(rank), dtype_(dtype), carried_(carried_by(map, rank)) {
  std::erase(carried_, rank);
  std::vector<size_t> widths(size_t(map.node_count()));
  for (const Subtree& part : parts_of(map, what)) {
    int machine = map.node_rank(part.begin);
    if (machine == map.node_rank(rank)) mine_.push_back(values_.size());
    values_.push_back({part, machine, width_});
    width_ += sum_bytes(part, dtype);
    widths[size_t(machine)] += sum_bytes(part, dtype);
  }
  my_width_ = widths[size_t(map.node_rank(rank))];
  longest_segment_ = elements_in_a_box(map, widths, width_);
}

// No longer than a part.
int64_t Exchange::segment_of(Cut cut) const {
  return std::min(longest_segment_, (int64_t(cut.stride / size_of(dtype_)) + 63) / 64 * 64);
}

std::byte* Exchange::inbox(const Value& value) const { return boxes_ + value.offset * size_t(segment_); }

// Behind the inbox, for each part that this rank carries the values of its machine.
std::byte* Exchange::outbox(size_t carried, const Value& value) const {
  size_t before = width_ + carried * my_width_;
  for (size_t i : mine_) {
    if (values_[i].part == value.part) break;
    before += sum_bytes(values_[i].part, dtype_);
  }
  return boxes_ + before * size_t(segment_);
}

// Of bytes [from, to) of the parts, in a segment that begins at `begin`.
void Exchange::make(const DirectTransport::Piece& piece, Cut cut, size_t from, size_t to, size_t begin) {
  size_t element = size_of(dtype_);
  std::vector<const void*> ranks;
  auto one = [&](int part, auto&& box_of) {
    auto [first, last] = range_of(cut, part, from, to);
    if (first == last) return;
    for (size_t i : mine_) {
      const Value& value = values_[i];
      ranks.clear();
      for (int r = value.part.begin; r < value.part.end; ++r) ranks.push_back(piece(map_.local_rank(r), part));
      std::byte* box = box_of(value) + (first - begin) / element * sum_bytes(value.part, dtype_);
      if (ranks.size() == 1)
        std::memcpy(box, ranks[0], last - first);
      else
        sum_subtree(box, value.part, ranks, int64_t((last - first) / element), dtype_);
    }
  };
  for (size_t i = 0; i < carried_.size(); ++i) one(carried_[i], [&](const Value& value) { return outbox(i, value); });
  one(rank_, [&](const Value& value) { return inbox(value); });
}

void Exchange::post(const Call& call, Link& link, Cut cut, size_t begin, size_t end) {
  auto bytes = [&](int part, const Value& value) {
    auto [first, last] = range_of(cut, part, begin, end);
    return (last - first) / size_of(dtype_) * sum_bytes(value.part, dtype_);
  };
  for (const Value& value : values_)
    if (value.machine != map_.node_rank(rank_))
      link.receive(call, carrier(map_, value.machine, rank_), inbox(value), bytes(rank_, value));
  for (size_t i = 0; i < carried_.size(); ++i)
    for (size_t mine : mine_) link.send(call, carried_[i], outbox(i, values_[mine]), bytes(carried_[i], values_[mine]));
}

void Exchange::run(const Call& call, DirectTransport& inner, Link& link, const void* full, Cut cut, KeptRoom& room,
                   const Check& check, const Take& take) {
  boxes_ = room.of(bytes(cut), context().backend(kCpu).memory());
  segment_ = segment_of(cut);
  size_t step = size_t(segment_) * size_of(dtype_);
  std::vector<Summed> parts;
  for (const Value& value : values_) parts.push_back({value.part, inbox(value)});
  size_t begin = 0;
  do {
    size_t end = std::min(cut.stride, begin + step);
    inner.look(call, {full, map_.world_size(), cut.stride, cut.total, begin, end, {}},
               [&](const DirectTransport::Piece& piece, size_t from, size_t to) { make(piece, cut, from, to, begin); });
    post(call, link, cut, begin, end);
    link.complete(check);
    auto [first, last] = range_of(cut, rank_, begin, end);
    if (first < last) take(parts, first, last);
    begin = end;
  } while (begin < cut.stride);
}

}  // namespace shardgrad::dist::two_level
