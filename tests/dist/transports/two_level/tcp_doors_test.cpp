// Connections between the ranks of machines that met by TCP: who calls whom, when, and what if nobody answers.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/peer.h>
#include <shardgrad/dist/transports/two_level/socket_link.h>
#include <tests/dist/pretended_machine.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;
using two_level::Doors;

/// A rank of a machine of its own, at address 127.0.0.(2 + rank), which exchanges what the others say by threads.
class MetByTcp final : public Bootstrap {
 public:
  /// `port`, unless 0: where the others find another listener in this rank's place.
  MetByTcp(std::shared_ptr<void> memory, int rank, int size, int port)
      : Bootstrap("tcp", rank, size, RankMap(machines_of(size, 1))),
        inner_(make_local_bootstrap("threads", std::move(memory), rank, size)),
        port_(port) {}
  std::vector<std::string> exchange(const std::string& mine) override {
    size_t space = mine.find(' ');
    return inner_->exchange(port_ && space != mine.npos ? std::to_string(port_) + mine.substr(space) : mine);
  }
  std::string address() const override { return concat("127.0.0.", 2 + rank()); }

 private:
  std::unique_ptr<Bootstrap> inner_;
  int port_;
};

/// The doors of so many ranks; of the last one the others know this port, unless it is 0.
std::vector<std::shared_ptr<Doors>> doors_of(int size, std::chrono::seconds reach = 30s, int last_port = 0) {
  std::shared_ptr<void> memory(std::aligned_alloc(128, (local_bootstrap_bytes(size) + 127) / 128 * 128), std::free);
  std::memset(memory.get(), 0, local_bootstrap_bytes(size));
  std::vector<std::shared_ptr<Doors>> doors(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      Context context({.rank = rank, .world_size = size});
      MetByTcp machine(memory, rank, size, rank == size - 1 ? last_port : 0);
      doors[size_t(rank)] = two_level::make_tcp_doors(machine, reach);
    });
  for (std::thread& rank : ranks) rank.join();
  return doors;
}

void nothing() {}

/// What a rank gets that opens its end after a while.
std::future<Socket> opened(const std::shared_ptr<Doors>& doors, int64_t group, int rank, int peer,
                           std::chrono::milliseconds after = 0ms, const Check& check = nothing) {
  return std::async(std::launch::async, [=] {
    std::this_thread::sleep_for(after);
    return doors->open(group, rank, peer, check);
  });
}

/// Whether what one end sends comes out at the other.
bool are_ends_of_one(const Socket& a, const Socket& b) {
  static int count = 0;
  std::string sent = concat("word ", ++count), rest = sent, got;
  if (!a.write_some(rest) || !rest.empty()) return false;
  for (int i = 0; i < 100 && got.size() < sent.size(); ++i, std::this_thread::sleep_for(1ms))
    if (!b.read_some(got, sent.size() - got.size())) return false;
  return got == sent;
}

TEST(TcpDoors, TwoRanksHaveAConnectionWhoeverComesFirst) {
  auto doors = doors_of(2);
  for (auto [first, second] : {std::pair(0ms, 100ms), {100ms, 0ms}}) {
    auto low = opened(doors[0], 1, 0, 1, first), high = opened(doors[1], 1, 1, 0, second);
    Socket caller = low.get(), called = high.get();
    EXPECT_TRUE(are_ends_of_one(caller, called));
    EXPECT_TRUE(are_ends_of_one(called, caller));
    EXPECT_EQ(own_address(called), "127.0.0.3") << "each listens where rank 0 knows its machine";
    EXPECT_EQ(address_of_peer(caller).substr(0, 10), "127.0.0.3:");
  }
}

TEST(TcpDoors, ConnectionsOfGroupsAreKeptApart) {
  auto doors = doors_of(2);
  const int64_t groups[] = {1, int64_t(1) << 32 | 1, int64_t(2) << 32 | 1};
  std::vector<std::future<Socket>> low, high;
  for (int64_t group : groups) low.push_back(opened(doors[0], group, 0, 1));
  for (size_t i = 3; i-- > 0;) high.push_back(opened(doors[1], groups[i], 1, 0, 50ms));
  std::array<Socket, 3> called, caller;
  for (size_t i = 0; i < 3; ++i) called[2 - i] = high[i].get(), caller[i] = low[i].get();
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(are_ends_of_one(caller[i], called[i])) << "group " << groups[i];
}

// As in a step of a collective: each opens its connections one after the other.
TEST(TcpDoors, RanksThatAllTalkWithAllDoNotWaitForEachOther) {
  constexpr int kRanks = 5;
  auto doors = doors_of(kRanks);
  std::array<std::array<Socket, kRanks>, kRanks> sockets;
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      for (int peer = 0; peer < kRanks; ++peer)
        if (peer != rank) sockets[size_t(rank)][size_t(peer)] = doors[size_t(rank)]->open(1, rank, peer, nothing);
    }));
  for (auto& rank : ranks) rank.get();
  for (size_t a = 0; a < kRanks; ++a)
    for (size_t b = 0; b < a; ++b) EXPECT_TRUE(are_ends_of_one(sockets[a][b], sockets[b][a])) << a << " and " << b;
}

TEST(TcpDoors, ARankThatCannotBeReachedIsNamed) {
  auto doors = doors_of(2, 1s);
  doors[1].reset();
  try {
    doors[0]->open(1, 0, 1, nothing);
    FAIL() << "nobody listens";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::rank_failed);
    EXPECT_NE(std::string(error.what()).find("rank 0 cannot reach rank 1 at 127.0.0.3:"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find(": Connection refused; is there a firewall or a proxy"), std::string::npos)
        << error.what();
  }
}

// As a proxy does that nobody stands behind.
TEST(TcpDoors, WhatTakesConnectionsAndClosesThemForEverIsNamed) {
  std::vector<Socket> proxy = listen_on("127.0.0.3", 0);
  auto doors = doors_of(2, 1s, port_of(proxy[0]));
  std::string unused;
  auto deadline = std::chrono::steady_clock::now() + 20s;
  auto closes = [&] {
    accept_from(proxy[0], unused);
    if (std::chrono::steady_clock::now() > deadline) fail_as(ErrorKind::internal, "the test has waited for long");
  };
  try {
    doors[0]->open(1, 0, 1, closes);
    FAIL() << "nobody answers";
  } catch (const Error& error) {
    std::string said = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::rank_failed);
    EXPECT_EQ(said.find("rank 0 cannot reach rank 1 at 127.0.0.3:"), 0u) << said;
    EXPECT_NE(said.find("what listens there closes the connections"), std::string::npos) << said;
  }
}

TEST(TcpDoors, AWaitEndsWithTheJob) {
  auto doors = doors_of(2);
  auto deadline = std::chrono::steady_clock::now() + 300ms;
  auto ended = [=] {
    if (std::chrono::steady_clock::now() > deadline) fail_as(ErrorKind::rank_failed, "rank 7 has failed");
  };
  for (int rank : {0, 1}) {
    auto waits = opened(doors[size_t(rank)], 1, rank, 1 - rank, 0ms, ended);
    ASSERT_EQ(waits.wait_for(5s), std::future_status::ready);
    EXPECT_THROW(waits.get(), Error) << "rank " << rank;
  }
}

// Each needs one, and there is one.
TEST(TcpDoors, ARankThatHasNoDescriptorLeftSaysSo) {
  auto doors = doors_of(2, 1s);
  rlimit limit{}, few{};
  getrlimit(RLIMIT_NOFILE, &limit);
  few = {std::min<rlim_t>(limit.rlim_cur, 256), limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<Socket> taken;
  for (int one; (one = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.emplace_back(one);
  taken.pop_back();
  auto deadline = std::chrono::steady_clock::now() + 4s;
  auto ended = [=] {
    if (std::chrono::steady_clock::now() > deadline) fail_as(ErrorKind::rank_failed, "the job has ended");
  };
  auto low = opened(doors[0], 1, 0, 1, 0ms, ended), high = opened(doors[1], 1, 1, 0, 0ms, ended);
  try {
    high.get();
    ADD_FAILURE() << "there is none for it";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("rank 1 cannot take the connection of rank 0: Too many open files"), 0u)
        << error.what();
  }
  EXPECT_THROW(low.get(), Error);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// It was there, so that its end has another cause, which comes a moment later.
TEST(TcpDoorsSlow, ARankThatGoesWhileItIsCalledIsNotTheCause) {
  auto doors = doors_of(2, 1s);
  auto low = opened(doors[0], 1, 0, 1, 0ms, [known = std::chrono::steady_clock::now() + 3500ms] {
    if (std::chrono::steady_clock::now() > known)
      fail_as(ErrorKind::rank_failed, "rank 1 failed: label 11 of sample 5");
  });
  std::this_thread::sleep_for(3s);
  doors[1].reset();
  try {
    low.get();
    FAIL() << "nobody listens";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1 failed: label 11 of sample 5");
  }
}

TEST(TcpDoorsSlow, ARankMayComputeForLongBeforeItAnswers) {
  auto doors = doors_of(2, 1s);
  auto low = opened(doors[0], 1, 0, 1), high = opened(doors[1], 1, 1, 0, 8s);
  Socket called = high.get(), caller = low.get();
  EXPECT_TRUE(are_ends_of_one(caller, called));
}

/// A connection whose other end has gone.
class DoorsToNobody final : public Doors {
 public:
  Socket open(int64_t, int, int, const Check&) override { return connected().first; }
};

// The kernel's keepalive or a router may end a connection of two ranks that both live.
TEST(SocketLinkSlow, AConnectionThatIsGoneWithoutACauseIsTheCause) {
  Context context({.world_size = 4});
  auto control = std::make_shared<Control>(make_private_page(4), 0);
  auto link = two_level::make_socket_link(std::make_shared<DoorsToNobody>(), 5, {1, 3}, 1, control);
  Call call;
  char byte = 0;
  for (bool sends : {true, false}) {
    sends ? link->send(call, 0, &byte, 1) : link->receive(call, 0, &byte, 1);
    try {
      link->complete(nothing);
      FAIL() << "nobody is there";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::rank_failed);
      EXPECT_EQ(std::string(error.what()).find("the connection of ranks 3 and 1 is gone: "), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace shardgrad::dist::testing
