#include <shardgrad/dist/transports/two_level/exchange.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/core/context.h>

namespace shardgrad::dist::two_level {
namespace {

std::vector<Subtree> parts_of(const RankMap& map, int machine, Exchange::What what) {
  if (what == Exchange::What::sums) return subtrees_of(map, machine);
  std::vector<Subtree> ranks;
  for (int local = 0; local < map.local_size(machine); ++local) {
    int rank = map.global_rank(machine, local);
    ranks.push_back({rank, rank + 1, 0});
  }
  return ranks;
}

/// The most parts of other machines that a rank of this one carries.
int most_carried(const RankMap& map, int machine) {
  int own = map.local_size(machine), most = 0;
  for (int other = 0; other < map.node_count(); ++other)
    if (other != machine) most += (map.local_size(other) + own - 1) / own;
  return most;
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
  size_t most = 0;
  for (int machine = 0; machine < map.node_count(); ++machine) {
    size_t width = 0;
    for (const Subtree& part : parts_of(map, machine, what)) {
      values_.push_back({part, machine, 0});
      width += sum_bytes(part, dtype);
    }
    most = std::max(most, width * size_t(most_carried(map, machine)));
    if (machine == map.node_rank(rank)) my_width_ = width;
  }
  std::ranges::sort(values_, {}, [](const Value& value) { return value.part.begin; });
  for (size_t i = 0; i < values_.size(); ++i) {
    values_[i].offset = width_;
    width_ += sum_bytes(values_[i].part, dtype);
    if (values_[i].machine == map.node_rank(rank)) mine_.push_back(i);
  }
  segment_ = std::max(int64_t(64), int64_t(kBoxBytes / std::max(most, width_) / 64 * 64));
}

// No longer than a part.
int64_t Exchange::segment_of(Cut cut) const {
  return std::min(segment_, (int64_t(cut.stride / size_of(dtype_)) + 63) / 64 * 64);
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
