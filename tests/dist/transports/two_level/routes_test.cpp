// Who sends what between machines, for every way to put up to nine ranks on machines.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>

#include <shardgrad/dist/transports/tree_sum.h>
#include <shardgrad/dist/transports/two_level/exchange.h>
#include <shardgrad/dist/transports/two_level/routes.h>
#include <shardgrad/dist/transports/two_level/subtree_sum.h>

namespace shardgrad::dist::two_level {
namespace {

/// Calls body with every map of `ranks` ranks, but for the numbers of machines.
void for_every_map(int ranks, const std::function<void(const RankMap&)>& body) {
  std::vector<int> machines(static_cast<size_t>(ranks));
  std::function<void(int, int)> place = [&](int rank, int used) {
    if (rank == ranks) return body(map_of(machines));
    for (int machine = 0; machine <= used; ++machine) {
      machines[size_t(rank)] = machine;
      place(rank + 1, std::max(used, machine + 1));
    }
  };
  place(0, 0);
}

std::string text_of(const RankMap& map) {
  std::string text = "machines of the ranks:";
  for (int r = 0; r < map.world_size(); ++r) text += " " + std::to_string(map.node_rank(r));
  return text;
}

/// Ranks that follow their routes, each as fast as it can, and what of the buffer each has: by its bytes.
class Walk {
 public:
  Walk(const RankMap& map, std::vector<std::vector<Step>> routes, std::vector<std::set<size_t>> has)
      : map_(map), routes_(std::move(routes)), has_(std::move(has)) {
    at_.resize(routes_.size());
    for (size_t r = 0; r < routes_.size(); ++r) begin_step(int(r));
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < routes_.size(); ++r)
        while (at_[r] < routes_[r].size() && step_ended(int(r))) {
          ++at_[r];
          begin_step(int(r));
          moved = true;
        }
    }
    for (size_t r = 0; r < routes_.size(); ++r) EXPECT_EQ(at_[r], routes_[r].size()) << "rank " << r << " waits";
    for (const auto& [pair, messages] : on_the_way_) EXPECT_TRUE(messages.empty()) << "nobody receives them";
  }
  const std::set<size_t>& has(int rank) const { return has_[size_t(rank)]; }
  /// How often each byte came to a machine.
  std::map<size_t, int>& arrivals(int machine) { return arrivals_[machine]; }

 private:
  void begin_step(int rank) {
    if (at_[size_t(rank)] == routes_[size_t(rank)].size()) return;
    for (const auto& [peer, begin, end] : routes_[size_t(rank)][at_[size_t(rank)]].sends) {
      EXPECT_LT(begin, end);
      EXPECT_NE(map_.node_rank(peer), map_.node_rank(rank)) << "ranks of a machine need no cable";
      for (size_t i = begin; i < end; ++i) EXPECT_TRUE(has_[size_t(rank)].contains(i)) << "sent before it is there";
      on_the_way_[{rank, peer}].push_back({begin, end});
    }
  }
  bool step_ended(int rank) {
    std::map<int, size_t> needed;
    const Step& step = routes_[size_t(rank)][at_[size_t(rank)]];
    for (const Transfer& one : step.receives)
      if (on_the_way_[{one.peer, rank}].size() < ++needed[one.peer]) return false;
    for (const auto& [peer, begin, end] : step.receives) {
      auto& messages = on_the_way_[{peer, rank}];
      EXPECT_EQ(messages.front(), std::pair(begin, end)) << "in another order than sent";
      messages.pop_front();
      for (size_t i = begin; i < end; ++i) {
        has_[size_t(rank)].insert(i);
        ++arrivals_[map_.node_rank(rank)][i];
      }
    }
    return true;
  }
  const RankMap& map_;
  std::vector<std::vector<Step>> routes_;
  std::vector<std::set<size_t>> has_;
  std::vector<size_t> at_;
  std::map<std::pair<int, int>, std::deque<std::pair<size_t, size_t>>> on_the_way_;
  std::map<int, std::map<size_t, int>> arrivals_;
};

std::set<size_t> bytes_of(Cut cut, int part) {
  std::set<size_t> bytes;
  for (size_t i = cut.begin(part); i < cut.end(part); ++i) bytes.insert(i);
  return bytes;
}

// Each part has two bytes; where some are short, the last but one has one, and the last none.
void check_gather(const RankMap& map, Way way, bool uneven) {
  int size = map.world_size();
  Cut cut{2, size_t(2 * size) - (uneven ? 3 : 0)};
  std::vector<std::vector<Step>> routes;
  std::vector<std::set<size_t>> has;
  for (int r = 0; r < size; ++r) {
    routes.push_back(gather_route(map, r, cut, way));
    has.push_back(bytes_of(cut, r));
  }
  Walk walk(map, routes, has);
  for (int machine = 0; machine < map.node_count(); ++machine)
    for (int part = 0; part < size; ++part)
      for (size_t i : bytes_of(cut, part)) {
        EXPECT_TRUE(walk.has(carrier(map, machine, part)).contains(i));
        EXPECT_EQ(walk.arrivals(machine)[i], map.node_rank(part) == machine ? 0 : 1) << "byte " << i;
      }
}

void check_gathers_of(int least, int most) {
  for (int size = least; size <= most; ++size)
    for_every_map(size, [&](const RankMap& map) {
      SCOPED_TRACE(text_of(map));
      for (Way way : {Way::line, Way::tree}) check_gather(map, way, size % 2 == 1);
    });
}

TEST(TwoLevelRoutes, AGatherBringsEveryByteToEveryMachineOnce) { check_gathers_of(2, 7); }
TEST(TwoLevelRoutesSlow, AGatherBringsEveryByteToEveryMachineOnce) { check_gathers_of(8, 9); }

void check_broadcast(const RankMap& map, int root, Way way) {
  int size = map.world_size(), parts = broadcast_parts(map);
  size_t total = size_t(5 * parts) - 3;
  Cut cut{5, total};
  std::set<size_t> all;
  for (size_t i = 0; i < total; ++i) all.insert(i);
  std::vector<std::vector<Step>> routes;
  std::vector<std::set<size_t>> has;
  for (int r = 0; r < size; ++r) {
    routes.push_back(broadcast_route(map, r, root, cut, way, 2));
    has.push_back(map.node_rank(r) == map.node_rank(root) ? all : std::set<size_t>());
  }
  Walk walk(map, routes, has);
  for (int machine = 0; machine < map.node_count(); ++machine)
    for (int part = 0; part < parts; ++part)
      for (size_t i : bytes_of(cut, part)) {
        EXPECT_TRUE(walk.has(broadcast_carrier(map, machine, part)).contains(i));
        EXPECT_EQ(walk.arrivals(machine)[i], map.node_rank(root) == machine ? 0 : 1) << "byte " << i;
      }
}

TEST(TwoLevelRoutes, ABroadcastBringsEveryByteToEveryMachineOnce) {
  for (int size = 2; size <= 7; ++size)
    for_every_map(size, [&](const RankMap& map) {
      SCOPED_TRACE(text_of(map));
      for (Way way : {Way::line, Way::tree}) check_broadcast(map, size / 2, way);
    });
}

TEST(TwoLevelRoutes, InALineAMachineTalksWithItsNeighboursAndInATreeItTakesFewSteps) {
  std::vector<int> machines;
  for (int r = 0; r < 32; ++r) machines.push_back(r / 2);
  RankMap map = map_of(machines);
  Cut cut{4, 4 * 32};
  for (const Step& step : gather_route(map, 7, cut, Way::line)) {
    for (const Transfer& one : step.sends) EXPECT_EQ(map.node_rank(one.peer), 2);
    for (const Transfer& one : step.receives) EXPECT_EQ(map.node_rank(one.peer), 4);
  }
  EXPECT_EQ(gather_route(map, 7, cut, Way::line).size(), 15u);
  EXPECT_EQ(gather_route(map, 7, cut, Way::tree).size(), 4u);
  EXPECT_EQ(barrier_route(map, 6).size(), 4u);
  EXPECT_TRUE(barrier_route(map, 7).empty());
}

TEST(TwoLevelRoutes, ABarrierHearsOfEveryMachine) {
  for (int machines = 2; machines <= 9; ++machines) {
    std::vector<int> one_each;
    for (int m = 0; m < machines; ++m) one_each.push_back(m);
    RankMap map = map_of(one_each);
    std::vector<std::set<int>> heard;
    for (int m = 0; m < machines; ++m) heard.push_back({m});
    for (size_t step = 0; step < barrier_route(map, 0).size(); ++step) {
      std::vector<std::set<int>> before = heard;
      for (int m = 0; m < machines; ++m) {
        int from = barrier_route(map, m)[step].receives.at(0).peer;
        EXPECT_EQ(barrier_route(map, from)[step].sends.at(0).peer, m);
        heard[size_t(m)].insert(before[size_t(from)].begin(), before[size_t(from)].end());
      }
    }
    for (const std::set<int>& of : heard) EXPECT_EQ(of.size(), size_t(machines));
  }
}

template <class T> void check_sum(const RankMap& map, DType dtype) {
  constexpr int64_t kCount = 3;
  int size = map.world_size();
  std::vector<std::vector<T>> values;
  std::vector<const void*> all;
  for (int r = 0; r < size; ++r) {
    values.emplace_back();
    for (int64_t i = 0; i < kCount; ++i)
      values.back().push_back(T(float((r * 7919 + int(i) * 104729) % 1000 - 500) * (r % 3 == 0 ? 0.001f : 1.37f)));
  }
  for (const auto& one : values) all.push_back(one.data());
  std::vector<T> expected(kCount), actual(kCount);
  tree_sum(expected.data(), all, kCount, dtype);

  std::vector<Subtree> parts;
  for (int machine = 0; machine < map.node_count(); ++machine)
    for (const Subtree& part : subtrees_of(map, machine)) {
      for (int r = part.begin; r < part.end; ++r) EXPECT_EQ(map.node_rank(r), machine);
      parts.push_back(part);
    }
  std::ranges::sort(parts, {}, &Subtree::begin);
  std::vector<std::vector<double>> sums(parts.size(), std::vector<double>(kCount));  // room for any dtype
  std::vector<Summed> summed;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::span<const void* const> of(all.data() + parts[i].begin, size_t(parts[i].end - parts[i].begin));
    sum_subtree(sums[i].data(), parts[i], of, kCount, dtype);
    summed.push_back({parts[i], sums[i].data()});
  }
  join_subtrees(actual.data(), summed, kCount, dtype);
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), sizeof(T) * kCount), 0) << dtype;
}

TEST(TwoLevelSums, OfPartsOfTheTreeHaveTheBitsOfTheWhole) {
  for (int size = 2; size <= 9; ++size)
    for_every_map(size, [&](const RankMap& map) {
      SCOPED_TRACE(text_of(map));
      check_sum<float>(map, DType::f32);
      if (size > 7) return;
      check_sum<double>(map, DType::f64);
      check_sum<bf16>(map, DType::bf16);
      check_sum<int32_t>(map, DType::i32);
    });
}

TEST(TwoLevelSums, NeighboursThatAreAPowerOfTwoAreOnePartOfTheTree) {
  EXPECT_EQ(subtrees_of(map_of({0, 0, 0, 0, 1, 1, 1, 1}), 1), (std::vector<Subtree>{{4, 8, 2}}));
  EXPECT_EQ(subtrees_of(map_of({0, 0, 0, 1, 1}), 0), (std::vector<Subtree>{{0, 2, 1}, {2, 3, 0}}));
  EXPECT_EQ(subtrees_of(map_of({0, 0, 0, 1, 1}), 1), (std::vector<Subtree>{{3, 4, 0}, {4, 5, 2}}));
  EXPECT_EQ(cost_of_mapping(map_of({0, 0, 0, 0, 1, 1, 1, 1})), 1);
  EXPECT_EQ(cost_of_mapping(map_of({0, 1, 0, 1, 0, 1, 0, 1})), 4);
  EXPECT_EQ(cost_of_mapping(map_of({0, 0, 0, 1, 1, 1})), 2);
}

// By the definition: a part is whole on a machine, and the next larger one is not.
TEST(TwoLevelSums, PartsAreTheLargestOnOneMachineAndAllRanksTogether) {
  for (int size = 2; size <= 8; ++size)
    for_every_map(size, [&](const RankMap& map) {
      SCOPED_TRACE(text_of(map));
      auto is_whole = [&](int begin, int end) {
        for (int r = begin; r < std::min(end, size); ++r)
          if (map.node_rank(r) != map.node_rank(begin)) return false;
        return true;
      };
      int next = 0;
      for (const Subtree& part : subtrees_of(map)) {
        int width = 1 << part.level, parent = part.begin / (2 * width) * 2 * width;
        EXPECT_EQ(part.begin, next);
        EXPECT_EQ(part.begin % width, 0);
        EXPECT_EQ(part.end, std::min(part.begin + width, size));
        EXPECT_TRUE(is_whole(part.begin, part.end));
        EXPECT_TRUE((width >= size) || !is_whole(parent, parent + 2 * width));
        next = part.end;
      }
      EXPECT_EQ(next, size);
    });
}

TEST(TwoLevelExchanges, AreMadeOnceForEachDtypeAndKind) {
  RankMap map = map_of({0, 0, 1, 1, 1});
  Exchanges exchanges(map, 3);
  std::set<const Exchange*> made;
  for (int again = 0; again < 3; ++again) {
    for (DType dtype : {DType::f32, DType::bf16}) made.insert(&exchanges.of(dtype, Exchange::What::sums));
    made.insert(&exchanges.of(DType::u8, Exchange::What::values));
    made.insert(&exchanges.of(DType::u8, Exchange::What::sums));
    EXPECT_EQ(made.size(), 4u) << "a later call made one";
  }
}

// 16,384 ranks are looked at by each of them.
TEST(TwoLevelExchanges, HaveSegmentsThatFitIntoABoxHoweverManyRanksThereAre) {
  std::vector<int> machines;
  for (int r = 0; r < 16384; ++r) machines.push_back(r / 8);
  RankMap map = map_of(machines);
  Exchange sums(map, 9, DType::f32, Exchange::What::sums);
  Cut cut{size_t(1) << 30, size_t(1) << 44};
  EXPECT_EQ(sums.bytes(cut), (2048 + 2047) * sizeof(float) * 512) << "in, and what it carries";
  EXPECT_EQ(sums.bytes({4 * 64, 4 * 64}), (2048 + 2047) * sizeof(float) * 64);
}

}  // namespace
}  // namespace shardgrad::dist::two_level
