// What crosses between machines that are pretended, and that sums have the bits of one machine wherever ranks are.

#include <tests/dist/child.h>
#include <tests/dist/group/group_cases.h>

#include <atomic>
#include <map>
#include <mutex>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/os/board.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/transports/two_level/machines.h>
#include <shardgrad/dist/transports/two_level/socket_link.h>

namespace shardgrad::dist::testing {
namespace {

struct Sent {
  std::atomic<size_t> bytes, messages;
};

/// Counts what its rank sends, by machine.
class CountingLink final : public two_level::Link {
 public:
  CountingLink(std::unique_ptr<Link> inner, Sent& sent) : inner_(std::move(inner)), sent_(sent) {}
  void send(const Call& call, int peer, const void* data, size_t bytes) override {
    sent_.bytes += bytes;
    ++sent_.messages;
    inner_->send(call, peer, data, bytes);
  }
  void receive(const Call& call, int peer, void* data, size_t bytes) override {
    inner_->receive(call, peer, data, bytes);
  }
  void complete(const Check& check) override { inner_->complete(check); }
  std::unique_ptr<Link> join(int64_t group, const std::vector<int>& members, int rank) override {
    return inner_->join(group, members, rank);
  }

 private:
  std::unique_ptr<Link> inner_;
  Sent& sent_;
};

std::shared_ptr<void> board_of(int size) {
  size_t bytes = Board::board_bytes(size);
  std::shared_ptr<void> memory(std::aligned_alloc(alignof(Seat), bytes), std::free);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

/// What each machine sends while all ranks call `body` once.
std::vector<Sent> all_sent_by_machine(const std::vector<int>& machines, const std::function<void(Transport&)>& body) {
  RankMap map = two_level::map_of(machines);
  auto doors = two_level::make_local_doors();
  std::vector<std::shared_ptr<void>> boards;
  for (int machine = 0; machine < map.node_count(); ++machine) boards.push_back(board_of(map.local_size(machine)));
  std::vector<Sent> sent(size_t(map.node_count()));
  ControlPage page = make_private_page(map.world_size());
  std::vector<int> all;
  for (int rank = 0; rank < map.world_size(); ++rank) all.push_back(rank);
  std::vector<std::thread> ranks;
  for (int rank : all)
    ranks.emplace_back([&, rank] {
      Context context({.rank = rank, .world_size = map.world_size()});
      auto control = std::make_shared<Control>(page, rank);
      size_t machine = size_t(map.node_rank(rank));
      auto link =
          std::make_unique<CountingLink>(two_level::make_socket_link(doors, 1, all, rank, control), sent[machine]);
      auto transport = make_two_level_transport(
          make_threads_transport(boards[machine], map.local_rank(rank), map.local_size(int(machine)), control),
          std::move(link), map, rank, control);
      body(*transport);
    });
  for (std::thread& rank : ranks) rank.join();
  return sent;
}
/// Of that, the bytes.
std::vector<size_t> sent_by_machine(const std::vector<int>& machines, const std::function<void(Transport&)>& body) {
  std::vector<size_t> bytes;
  for (const Sent& sent : all_sent_by_machine(machines, body)) bytes.push_back(sent.bytes);
  return bytes;
}

constexpr Call kCall{.sequence = 1, .fingerprint = 7};

TEST(TwoLevel, AGatherSendsWhatOtherMachinesLackOnce) {
  constexpr size_t kShard = 64 << 10;
  auto gather = [](Transport& transport) {
    std::vector<std::byte> full(kShard * size_t(transport.size())), shard(kShard);
    transport.all_gather(kCall, full.data(), shard.data(), kShard);
  };
  for (const std::vector<int>& machines :
       {std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 2, 2}}) {
    size_t all = machines.size() * kShard, count = size_t(two_level::map_of(machines).node_count());
    for (size_t sent : sent_by_machine(machines, gather)) EXPECT_EQ(sent, all * (count - 1) / count);
  }
}

size_t most(const std::vector<size_t>& sent) { return *std::ranges::max_element(sent); }

TEST(TwoLevel, ASumSendsOneValueForEachPartOfTheTree) {
  constexpr int64_t kEach = 4096;
  auto reduce = [](DType dtype) {
    return [dtype](Transport& transport) {
      std::vector<float> full(size_t(kEach) * size_t(transport.size())), shard(kEach);
      transport.reduce_scatter(kCall, shard.data(), full.data(), kEach, dtype);
    };
  };
  size_t all = 8 * kEach * sizeof(float);
  EXPECT_EQ(most(sent_by_machine({0, 0, 0, 0, 1, 1, 1, 1}, reduce(DType::f32))), all / 2);
  EXPECT_EQ(most(sent_by_machine({0, 0, 1, 1, 2, 2, 3, 3}, reduce(DType::f32))), all * 3 / 4);
  EXPECT_EQ(most(sent_by_machine({0, 1, 0, 1, 0, 1, 0, 1}, reduce(DType::f32))), 4 * all / 2) << "dealt out in turn";
  EXPECT_EQ(most(sent_by_machine({0, 0, 0, 0, 1, 1, 1, 1}, reduce(DType::bf16))), all / 2) << "f32 inside";
}

TEST(TwoLevel, AnAllReduceSendsItsSumsAndThenWhatOtherMachinesLackOnce) {
  constexpr int64_t kCount = 1 << 17;
  constexpr size_t kAll = kCount * sizeof(float);
  auto reduce = [&](Transport& transport) {
    std::vector<float> data(kCount, 1);
    transport.all_reduce(kCall, data.data(), kCount, DType::f32);
    EXPECT_EQ(std::ranges::count(data, float(transport.size())), kCount);
  };
  auto expect_each = [&](const std::vector<int>& machines, size_t bytes) {
    for (size_t sent : sent_by_machine(machines, reduce)) EXPECT_EQ(sent, bytes) << ::testing::PrintToString(machines);
  };
  expect_each({0, 0, 0, 0, 1, 1, 1, 1}, kAll / 2 + kAll / 2);
  expect_each({0, 0, 1, 1, 2, 2, 3, 3}, kAll * 3 / 4 + kAll * 3 / 4);
  expect_each({0, 1, 0, 1, 0, 1, 0, 1}, 4 * kAll / 2 + kAll / 2);
}

TEST(TwoLevel, AnAllToAllSendsEachRanksValuesForOtherMachinesOnce) {
  constexpr size_t kEach = 64 << 10;
  auto exchange = [](Transport& transport) {
    auto ranks = size_t(transport.size());
    std::vector<std::byte> in(kEach * ranks, std::byte(transport.rank())), out(in.size());
    transport.all_to_all(kCall, out.data(), in.data(), kEach);
    for (size_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(out[rank * kEach], std::byte(rank));
  };
  for (size_t sent : sent_by_machine({0, 0, 0, 0, 1, 1, 1, 1}, exchange)) EXPECT_EQ(sent, 4 * 4 * kEach);
  for (size_t sent : sent_by_machine({0, 1, 0, 1, 0, 1}, exchange)) EXPECT_EQ(sent, 3 * 3 * kEach);
  EXPECT_EQ(sent_by_machine({0, 0, 1, 1, 1, 2}, exchange),
            (std::vector<size_t>{2 * 4 * kEach, 3 * 3 * kEach, 1 * 5 * kEach}));
}

TEST(TwoLevel, ALongSumAfterAShortOneTakesNoMoreMessagesThanAlone) {
  auto messages = [](const std::vector<int64_t>& counts) {
    auto reduce = [&](Transport& transport) {
      Call call = kCall;
      for (int64_t count : counts) {
        std::vector<float> full(size_t(count) * size_t(transport.size()), 1), shard(static_cast<size_t>(count));
        transport.reduce_scatter(call, shard.data(), full.data(), count, DType::f32);
        EXPECT_EQ(std::ranges::count(shard, float(transport.size())), count);
        ++call.sequence;
      }
    };
    return all_sent_by_machine({0, 0, 1, 1}, reduce)[0].messages.load();
  };
  EXPECT_EQ(messages({64, 1 << 16, 64}), messages({64}) + messages({1 << 16}) + messages({64}));
}

TEST(TwoLevel, ABroadcastCrossesEachCableOnce) {
  constexpr size_t kBytes = 3 << 20;  // which goes on in pieces, from machine to machine
  auto broadcast = [](Transport& transport) {
    std::vector<std::byte> data(kBytes, std::byte(transport.rank() == 1 ? 1 : 0));
    transport.broadcast(kCall, data.data(), kBytes, 1);
    EXPECT_EQ(std::ranges::count(data, std::byte(1)), int64_t(kBytes));
  };
  for (size_t sent : sent_by_machine({0, 0, 1, 1, 2}, broadcast)) EXPECT_LE(sent, kBytes);
}

// Every mapping and 16 bits: the sum that one machine makes.
TEST(TwoLevel, SumsHaveTheSameBitsWhereverTheRanksAre) {
  auto check = [](ProcessGroup& group) {
    reduce_scatter_sums_in_tree_order(group);
    all_reduce_sums_in_tree_order(group);
  };
  for (const std::vector<int>& machines : {std::vector<int>{0, 1, 0}, {0, 1, 1, 1}, {0, 0, 1, 1, 1, 2, 2}})
    run_ranks(int(machines.size()), check, {.group = {.machines = machines}});
}

TEST(TwoLevel, RanksOfOneMachineMakeAGroupOfItsOwnKind) {
  run_ranks(4,
            [](ProcessGroup& world) {
              EXPECT_EQ(world.kind(), "two_level");
              auto row = world.split(world.rank() / 2, 0), column = world.split(world.rank() % 2, 0);
              EXPECT_EQ(row->kind(), "shared_memory");
              EXPECT_TRUE(row->common_memory(64)) << "which gathers copy nothing in";
              EXPECT_FALSE(world.common_memory(64));
              EXPECT_EQ(column->kind(), "two_level");
              expect_sum_of_members(*row);
              expect_sum_of_members(*column);
            },
            {.group = {.kind = "shared_memory", .machines = {0, 0, 1, 1}}});
}

// Ranks 1 and 2 have their first message for each other in a sum, all groups' at once, and rank 2 comes late.
TEST(TwoLevel, GroupsWithinGroupsHaveConnectionsOfTheirOwn) {
  run_ranks(5,
            [](ProcessGroup& world) {
              auto inner = world.split(0, 0), innermost = inner->split(0, 0);
              if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));
              std::vector<Tensor> sums;
              std::vector<Work> works;
              for (ProcessGroup* group : {&world, inner.get(), innermost.get()}) {
                float value = float(sums.size() + 1);
                sums.push_back(from_vector(std::vector<float>(80, value), {80}));
                works.push_back(group->all_reduce(sums.back()));
              }
              for (size_t i = 0; i < works.size(); ++i) {
                works[i].host_wait();
                EXPECT_EQ(sums[i].to_vector<float>(), std::vector<float>(80, 5 * float(i + 1)));
              }
            },
            {.group = {.machines = {0, 0, 1, 2, 3}}});
}

// It is the group's fourth and its machine's second; the group's second lives.
TEST(TwoLevel, ARankOfTheMachineThatIsLostWhileItReadsIsNotWaitedFor) {
  Child living([] { pause(); }), reader([] { pause(); });
  kill(reader.pid(), SIGKILL);
  std::shared_ptr<void> memory = board_of(2);
  std::atomic<uint32_t>& reading = Board(memory, 1, 2).mine().reading;
  reading.store(1);
  ControlPage page = make_private_page(4);
  page.row(1).pid.store(living.pid());
  page.row(3).pid.store(reader.pid());
  Context context({.rank = 2, .world_size = 4});
  auto control = std::make_shared<Control>(page, 2);
  int lane = control->open_lane(1, {0, 1, 2, 3});
  auto link = two_level::make_socket_link(two_level::make_local_doors(), 1, {0, 1, 2, 3}, 2, control);
  auto transport = make_two_level_transport(make_threads_transport(memory, 0, 2, control), std::move(link),
                                            two_level::map_of({0, 0, 1, 1}), 2, control);
  page.claim_cause(3, 4, "rank 3 died");
  std::atomic<bool> over{false};
  std::thread patience([&] {
    for (int i = 0; i < 300 && !over; ++i) usleep(10'000);
    if (!over) reading.store(0);
  });
  EXPECT_THROW(transport->barrier({.sequence = 1, .fingerprint = 7, .lane = lane}), Error);
  EXPECT_EQ(reading.load(), 1u) << "it was waited for";
  over = true;
  patience.join();
}

TEST(TwoLevel, RanksInDifferentCallsAreNamed) {
  auto diverge = [](ProcessGroup& world) {
    Tensor t = empty({8});
    if (world.rank() < 2)
      world.all_reduce(t, Label{"ours", "forward"}).host_wait();
    else
      world.broadcast(t, 2, Label{"theirs", "forward"}).host_wait();
  };
  try {
    run_ranks(4, diverge, {.group = {.machines = {0, 0, 1, 1}}});
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("theirs"), std::string::npos) << error.what();
  }
}

TEST(TwoLevel, ARankThatFailsEndsTheWaitsOnOtherMachines) {
  auto fail_on_one = [](ProcessGroup& world) {
    if (world.rank() == 3) fail("no more data");
    Tensor t = empty({1 << 20});
    world.all_reduce(t).host_wait();
  };
  try {
    run_ranks(4, fail_on_one, {.group = {.machines = {0, 0, 1, 1}}});
    FAIL() << "not thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no more data"), std::string::npos) << error.what();
  }
}

TEST(TwoLevel, EachRankNeedsAMachine) {
  EXPECT_NE(refusal([] {
              run_ranks(3, [](ProcessGroup&) {}, {.group = {.machines = {0, 1}}});
            }).find("2 ranks have a machine"),
            std::string::npos);
}

}  // namespace
}  // namespace shardgrad::dist::testing
