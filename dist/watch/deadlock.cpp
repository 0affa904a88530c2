#include <shardgrad/dist/watch/deadlock.h>

#include <algorithm>

namespace shardgrad::dist {
namespace {

// The collective that a rank is in. It was begun before `finished` is read, so it is not over by then.
bool in_collective(const Lane& lane, Place& place) {
  return lane.place.load(place) && place.sequence > lane.finished.load();
}

class Search {
 public:
  explicit Search(const ControlPage& page) : page_(page) {}
  const std::vector<Stuck>& cycle() const { return path_; }

  // Depth first. True when a cycle was found, which path_ then is.
  bool visit(int rank, int lane) {
    Stuck stuck{rank, lane, {}};
    if (!in_collective(page_.row(rank).lanes[lane], stuck.place)) return false;
    auto same = std::ranges::find(path_, stuck);
    if (same != path_.end()) {
      path_.erase(path_.begin(), same);
      return true;
    }
    if (std::ranges::find(seen_, stuck) != seen_.end()) return false;
    seen_.push_back(stuck);
    if (stuck.place.root >= 0) return false;  // a broadcast
    path_.push_back(stuck);
    for (int member = 0; member < page_.ranks(); ++member)
      for (int next : holding_back(page_.row(member), stuck.place))
        if (visit(member, next)) return true;
    path_.pop_back();
    return false;
  }

 private:
  // The lanes whose collectives keep the rank of this row from calling `place`.
  static std::vector<int> holding_back(const Row& row, const Place& place) {
    std::vector<int> lanes;
    const Lane* mine = row.lane_of(place.group);
    if (!mine || mine->called.load(std::memory_order_acquire) >= place.sequence) return lanes;
    for (int i = 0; i < Row::kLanes; ++i) {
      Blocked blocked = Blocked::from(row.lanes[i].blocked.load());
      Place here;
      if (blocked.thread != mine->caller.load() || !in_collective(row.lanes[i], here)) continue;
      if (here.sequence <= blocked.sequence) lanes.push_back(i);
    }
    return lanes;
  }

  const ControlPage& page_;
  std::vector<Stuck> path_, seen_;
};

}  // namespace

std::vector<Stuck> find_deadlock(const ControlPage& page, int rank, int lane) {
  Search search(page);
  if (!search.visit(rank, lane)) return {};
  std::vector<Stuck> cycle = search.cycle();
  auto lowest = std::ranges::min_element(cycle, {}, &Stuck::rank);
  std::rotate(cycle.begin(), lowest, cycle.end());  // every finder says the same
  return cycle;
}

}  // namespace shardgrad::dist
