// What the system says of the other end of a connection.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include <shardgrad/dist/os/peer.h>
#include <tests/dist/child.h>
#include <tests/dist/tcp_pair.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;

/// A machine, with which this process has a connection that others are not told of.
struct Machine {
  explicit Machine(std::string at) : address(std::move(at)), link(address) {}
  uint64_t exchanged(std::vector<pid_t> processes = {getpid()}) const {
    return exchanged_by_address(processes, {&link.here})[address];
  }
  // Whether the bytes have gone on.
  bool grows(uint64_t before) const {
    for (int i = 0; i < 50 && exchanged() == before; ++i) std::this_thread::sleep_for(10ms);
    return exchanged() > before;
  }
  std::string address;
  TcpPair link;
};

void send_data(const Socket& socket) {
  std::string data = "data of another library";
  ASSERT_TRUE(socket.write_some(data));
  ASSERT_TRUE(data.empty());
}

TEST(Peer, DataThatCameOrWereTakenThroughAnyConnectionWithAMachineAreCounted) {
  Machine machine("127.0.0.2");
  TcpPair busy(machine.address);
  uint64_t before = machine.exchanged();
  EXPECT_FALSE(machine.grows(before));
  send_data(busy.there);
  EXPECT_TRUE(machine.grows(before));
  before = machine.exchanged();
  send_data(busy.here);
  EXPECT_TRUE(machine.grows(before)) << "the other end has taken them";
}

TEST(Peer, AConnectionOfIPv6IsOneToo) {
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  Machine machine("::1");
  TcpPair busy(machine.address);
  uint64_t before = machine.exchanged();
  send_data(busy.there);
  EXPECT_TRUE(machine.grows(before));
}

// It carries heartbeats.
TEST(Peer, WhatGoesThroughTheConnectionsThatAreLeftOutIsNotCounted) {
  Machine machine("127.0.0.4");
  uint64_t before = machine.exchanged();
  send_data(machine.link.here);
  send_data(machine.link.there);
  EXPECT_FALSE(machine.grows(before));
}

// A kernel takes heartbeats for a process that stands still.
TEST(Peer, WhatCameThroughAConnectionIsTold) {
  TcpPair pair;
  send_data(pair.here);
  send_data(pair.there);
  send_data(pair.there);
  std::string data = "data of another library";
  for (int i = 0; i < 50 && received_through(pair.here) < 2 * data.size(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(received_through(pair.here), 2 * data.size());
  EXPECT_EQ(received_through(pair.there), data.size());
}

TEST(Peer, DataOfOtherMachinesAreNotCounted) {
  Machine machine("127.0.0.2");
  TcpPair busy("127.0.0.3");
  uint64_t before = machine.exchanged();
  send_data(busy.there);
  EXPECT_FALSE(machine.grows(before));
  auto all = exchanged_by_address({getpid()}, {});
  EXPECT_GT(all["127.0.0.1"] + all["127.0.0.3"], 0u);
}

// As another rank of this machine; nobody else's connections count, for they go on where all ranks stand still.
TEST(Peer, OnlyConnectionsOfTheseProcessesAreCounted) {
  Machine machine("127.0.0.5");
  uint64_t before = machine.exchanged();
  Child rank([&] {
    TcpPair its(machine.address);
    send_data(its.there);
    pause();
  });
  EXPECT_FALSE(machine.grows(before));
  EXPECT_GT(machine.exchanged({getpid(), rank.pid()}), before);
  EXPECT_EQ(machine.exchanged({}), 0u);
}

TEST(Peer, WhatIsNoTcpConnectionTellsNothing) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Socket one(ends[0]), other(ends[1]);
  std::string data = "data";
  ASSERT_TRUE(other.write_some(data));
  EXPECT_EQ(received_through(one), 0u);
  EXPECT_EQ(received_through(Socket()), 0u);
  auto all = exchanged_by_address({getpid()}, {&one, &other});
  EXPECT_EQ(all[""] + all["127.0.0.2"], 0u);
}

}  // namespace
}  // namespace shardgrad::dist::testing
