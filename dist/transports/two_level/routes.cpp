#include <shardgrad/dist/transports/two_level/routes.h>

#include <algorithm>

namespace shardgrad::dist::two_level {
namespace {

/// From here on a line's steps, which move one machine's part each, take longer than their number does.
constexpr size_t kLong = size_t(1) << 18;

// What `rank` has to send to, or get from, the machine `other` when `count` machines' parts, from `first` on, go there.
template <class Enter> void for_blocks(const RankMap& map, int rank, int first, int count, Cut cut, Enter&& enter) {
  int mine = map.node_rank(rank), machines = map.node_count();
  for (int i = 0; i < count; ++i) {
    int machine = (first + i) % machines;
    for (int local = 0; local < map.local_size(machine); ++local) {
      int part = map.global_rank(machine, local);
      if (carrier(map, mine, part) == rank && cut.length(part) > 0) enter(part);
    }
  }
}

// Machine m sends `count` machines' parts, from m + ahead on, to m - back, and gets as many from m + back.
Step gather_step(const RankMap& map, int rank, Cut cut, int back, int ahead, int count) {
  int mine = map.node_rank(rank), machines = map.node_count();
  int to = (mine + machines - back) % machines, from = (mine + back) % machines;
  Step step;
  for_blocks(map, rank, mine + ahead, count, cut, [&](int part) {
    step.sends.push_back({carrier(map, to, part), cut.begin(part), cut.end(part)});
  });
  for_blocks(map, rank, from + ahead, count, cut, [&](int part) {
    step.receives.push_back({carrier(map, from, part), cut.begin(part), cut.end(part)});
  });
  return step;
}

}  // namespace

Way way_for(size_t bytes) { return bytes < kLong ? Way::tree : Way::line; }

Cut slices_of(int64_t elements, int ranks, DType dtype) {
  constexpr int64_t kStep = 16;
  int64_t slice = (elements + ranks * kStep - 1) / (ranks * kStep) * kStep;
  return {size_t(slice) * size_of(dtype), size_t(elements) * size_of(dtype)};
}

std::vector<Step> gather_route(const RankMap& map, int rank, Cut cut, Way way) {
  std::vector<Step> steps;
  int machines = map.node_count();
  if (way == Way::line)
    for (int step = 0; step + 1 < machines; ++step) steps.push_back(gather_step(map, rank, cut, 1, step, 1));
  else  // after a step, a machine has the parts of twice as many: its own and those that follow
    for (int known = 1; known < machines; known *= 2)
      steps.push_back(gather_step(map, rank, cut, known, 0, std::min(known, machines - known)));
  return steps;
}

int broadcast_parts(const RankMap& map) {
  int parts = 0;
  for (int machine = 0; machine < map.node_count(); ++machine) parts = std::max(parts, map.local_size(machine));
  return parts;
}

namespace {

/// From whom a machine has a broadcast and to whom it passes it on, by places, of which root's machine has 0.
struct Relay {
  int parent;  // -1: none
  std::vector<int> children;
};

Relay relay(int place, int machines, Way way) {
  if (way == Way::line) return {place - 1, place + 1 < machines ? std::vector<int>{place + 1} : std::vector<int>{}};
  int lowest = place == 0 ? machines : place & -place;
  Relay result{place == 0 ? -1 : place - lowest, {}};
  int reach = 1;
  while (reach * 2 < std::min(lowest, machines)) reach *= 2;
  for (; reach >= 1; reach /= 2)  // the longest way first
    if (reach < lowest && place + reach < machines) result.children.push_back(place + reach);
  return result;
}

}  // namespace

std::vector<Step> broadcast_route(const RankMap& map, int rank, int root, Cut cut, Way way, size_t piece) {
  int machines = map.node_count(), mine = map.node_rank(rank), first = map.node_rank(root);
  Relay links = relay((mine - first + machines) % machines, machines, way);
  auto carrier_at = [&](int place, int part) { return broadcast_carrier(map, (place + first) % machines, part); };
  if (way == Way::tree) piece = cut.stride;
  int pieces = cut.stride == 0 ? 0 : int((cut.stride + piece - 1) / piece);
  std::vector<Step> steps(size_t(pieces) + 1);
  for (int part = 0; part < broadcast_parts(map); ++part) {
    if (broadcast_carrier(map, mine, part) != rank) continue;
    for (int i = 0; i < pieces; ++i) {  // a piece goes on in the step after the one in which it came
      size_t begin = std::min(cut.end(part), cut.begin(part) + size_t(i) * piece);
      size_t end = std::min(cut.end(part), begin + piece);
      if (begin == end) continue;
      if (links.parent >= 0) steps[size_t(i)].receives.push_back({carrier_at(links.parent, part), begin, end});
      for (int child : links.children) steps[size_t(i) + 1].sends.push_back({carrier_at(child, part), begin, end});
    }
  }
  return steps;
}

std::vector<Step> barrier_route(const RankMap& map, int rank) {
  std::vector<Step> steps;
  int machines = map.node_count(), mine = map.node_rank(rank);
  if (map.local_rank(rank) != 0) return steps;
  for (int distance = 1; distance < machines; distance *= 2)
    steps.push_back({{{map.global_rank((mine + distance) % machines, 0), 0, 1}},
                     {{map.global_rank((mine + machines - distance) % machines, 0), 1, 2}}});
  return steps;
}

}  // namespace shardgrad::dist::two_level
