// What the system says of the other end of a connection.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include <shardgrad/dist/os/peer.h>
#include <tests/dist/child.h>
#include <tests/dist/tcp_pair.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;

// Of this process.
uint64_t exchanged(const Socket& socket) { return exchanged_with(socket, {getpid()}).value(); }

// Whether the bytes have gone on.
bool grows(const Socket& socket, uint64_t before) {
  for (int i = 0; i < 50 && exchanged(socket) == before; ++i) std::this_thread::sleep_for(10ms);
  return exchanged(socket) > before;
}

void send_data(const Socket& socket) {
  std::string data = "data of another library";
  ASSERT_TRUE(socket.write_some(data));
  ASSERT_TRUE(data.empty());
}

TEST(Peer, DataThatCameOrWereTakenThroughAnyConnectionWithAMachineAreCounted) {
  TcpPair quiet("127.0.0.2"), busy("127.0.0.2");
  uint64_t before = exchanged(quiet.here);
  EXPECT_FALSE(grows(quiet.here, before));
  send_data(busy.there);
  EXPECT_TRUE(grows(quiet.here, before));
  before = exchanged(quiet.here);
  send_data(busy.here);
  EXPECT_TRUE(grows(quiet.here, before)) << "the other end has taken them";
}

// What it is asked about carries heartbeats, which a kernel takes for who stands still.
TEST(Peer, OfTheConnectionItselfOnlyWhatCameIsCounted) {
  TcpPair pair("127.0.0.4");
  uint64_t before = exchanged(pair.here);
  send_data(pair.here);
  EXPECT_FALSE(grows(pair.here, before));
  send_data(pair.there);
  EXPECT_TRUE(grows(pair.here, before));
}

TEST(Peer, DataOfOtherMachinesAreNotCounted) {
  TcpPair quiet("127.0.0.2"), busy("127.0.0.3");
  uint64_t before = exchanged(quiet.here);
  send_data(busy.there);
  EXPECT_FALSE(grows(quiet.here, before));
}

// As another rank of this machine; nobody else's connections count, for they go on where all ranks stand still.
TEST(Peer, OnlyConnectionsOfTheseProcessesAreCounted) {
  TcpPair ours("127.0.0.5");
  uint64_t before = exchanged(ours.here);
  Child rank([] {
    TcpPair its("127.0.0.5");
    send_data(its.there);
    pause();
  });
  EXPECT_FALSE(grows(ours.here, before));
  EXPECT_GT(exchanged_with(ours.here, {getpid(), rank.pid()}).value(), before);
  EXPECT_FALSE(exchanged_with(ours.here, {}).has_value());
}

TEST(Peer, WhatIsNoTcpConnectionTellsNothing) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Socket one(ends[0]), other(ends[1]);
  EXPECT_FALSE(exchanged_with(one, {getpid()}).has_value());
  EXPECT_FALSE(exchanged_with(Socket(), {getpid()}).has_value());
}

}  // namespace
}  // namespace shardgrad::dist::testing
