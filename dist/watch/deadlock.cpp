#include <shardgrad/dist/watch/deadlock.h>

#include <algorithm>
#include <unordered_map>

namespace shardgrad::dist {
namespace {

// The collective that a rank is in. It was begun before `finished` is read, so it is not over by then.
bool in_collective(const Lane& lane, Place& place) {
  return lane.place.load(place) && place.sequence > lane.finished.load();
}

class Search {
 public:
  explicit Search(const ControlPage& page) : page_(page) {}

  // Depth first, without recursion, for a path may be as long as there are ranks. A cycle, or nothing.
  std::vector<Stuck> from(Stuck first) {
    for (visit(std::move(first)); !path_.empty();) {
      Step& step = path_.back();
      if (step.next == step.held_by.size()) {
        met_[key(step.stuck)] = kDone;
        path_.pop_back();
        continue;
      }
      Stuck stuck = std::move(step.held_by[step.next++]);
      auto met = met_.find(key(stuck));
      if (met == met_.end())
        visit(std::move(stuck));
      else if (met->second != kDone)
        return cycle_to(std::move(stuck), met->second);
    }
    return {};
  }

 private:
  /// A rank that waits in a collective, and those that keep the collective from ending, where they wait themselves.
  struct Step {
    Stuck stuck;
    std::vector<Stuck> held_by;
    size_t next = 0;
  };
  struct Key {
    uint64_t group, sequence;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const { return size_t(key.group * 0x9e3779b97f4a7c15u ^ key.sequence); }
  };
  static constexpr size_t kDone = ~size_t(0);
  static Key key(const Stuck& stuck) { return {stuck.place.group, stuck.place.sequence}; }

  void visit(Stuck stuck) {
    Step step{std::move(stuck), {}};
    met_[key(step.stuck)] = path_.size();
    if (step.stuck.place.root < 0)  // no broadcast
      for (int member : members(step.stuck.place.group)) add_held_by(member, step.stuck.place, step.held_by);
    path_.push_back(std::move(step));
  }

  // From the collective at `begin` of the path on, and back to it by way of `last`, which waits there.
  std::vector<Stuck> cycle_to(Stuck last, size_t begin) const {
    std::vector<Stuck> cycle = {std::move(last)};
    for (size_t i = begin + 1; i < path_.size(); ++i) cycle.push_back(path_[i].stuck);
    return cycle;
  }

  // Where `member` waits, if that keeps it from calling `place`. One of a collective is enough.
  void add_held_by(int member, const Place& place, std::vector<Stuck>& held_by) const {
    const Row& row = page_.row(member);
    uint64_t image = row.image.load();
    const Lane* mine = row.lane_of(place.group);
    if (image % 2 == 1 || !mine || mine->called.load(std::memory_order_acquire) >= place.sequence) return;
    size_t before = held_by.size();
    for (const Lane& lane : row.used_lanes()) {
      Blocked blocked = Blocked::from(lane.blocked.load());
      Stuck stuck{member, int(&lane - row.lanes), {}};
      if (blocked.thread != mine->caller.load() || !in_collective(lane, stuck.place)) continue;
      bool known = !held_by.empty() && key(held_by.back()) == key(stuck);
      if (stuck.place.sequence <= blocked.sequence && !known) held_by.push_back(std::move(stuck));
    }
    if (row.image.load() != image) held_by.resize(before);  // another image has come meanwhile
  }

  // Of the first collective, which is mostly the only one, by a look at each row; of others by an index.
  std::vector<int> members(uint64_t group) {
    std::vector<int> ranks;
    if (path_.empty() && index_.empty()) {
      for (int r = 0; r < page_.ranks(); ++r)
        if (page_.row(r).lane_of(group)) ranks.push_back(r);
      return ranks;
    }
    for (int r = 0; r < page_.ranks() && !is_indexed_; ++r)
      for (const Lane& lane : page_.row(r).used_lanes())
        if (uint64_t id = lane.group.load(); id != 0) index_[id].push_back(r);
    is_indexed_ = true;
    auto found = index_.find(group);
    return found == index_.end() ? ranks : found->second;
  }

  const ControlPage& page_;
  std::vector<Step> path_;
  std::unordered_map<Key, size_t, Hash> met_;  // where it is on the path, or kDone
  std::unordered_map<uint64_t, std::vector<int>> index_;
  bool is_indexed_ = false;
};

}  // namespace

std::vector<Stuck> find_deadlock(const ControlPage& page, int rank, int lane) {
  Stuck first{rank, lane, {}};
  if (!in_collective(page.row(rank).lanes[lane], first.place)) return {};
  std::vector<Stuck> cycle = Search(page).from(std::move(first));
  auto lowest = std::ranges::min_element(cycle, {}, &Stuck::rank);
  std::rotate(cycle.begin(), lowest, cycle.end());  // every finder says the same
  return cycle;
}

}  // namespace shardgrad::dist
