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
std::optional<std::chrono::milliseconds> last_arrival(const Socket& socket) {
  return last_arrival_from(socket, {getpid()});
}

TEST(Peer, DataThroughAnyConnectionWithAMachineAreHeard) {
  TcpPair quiet, busy;
  std::this_thread::sleep_for(600ms);
  auto before = last_arrival(quiet.here);
  ASSERT_TRUE(before.has_value());
  EXPECT_GE(*before, 500ms);
  std::string data = "data of another library";
  ASSERT_TRUE(busy.there.write_some(data));
  std::this_thread::sleep_for(50ms);
  EXPECT_LT(last_arrival(quiet.here).value(), 400ms);
}

TEST(Peer, WhoSendsNothingButAcknowledgementsIsNotHeard) {
  TcpPair pair("127.0.0.4");
  std::string mine = "what the other end's kernel acknowledges";
  std::this_thread::sleep_for(600ms);
  ASSERT_TRUE(pair.here.write_some(mine));
  std::this_thread::sleep_for(100ms);
  EXPECT_GE(last_arrival(pair.here).value(), 600ms);
}

TEST(Peer, OtherMachinesAreNotHeard) {
  TcpPair quiet("127.0.0.2"), busy("127.0.0.3");
  std::this_thread::sleep_for(600ms);
  std::string data = "data of another machine";
  ASSERT_TRUE(busy.there.write_some(data));
  std::this_thread::sleep_for(50ms);
  EXPECT_GE(last_arrival(quiet.here).value(), 500ms);
  EXPECT_LT(last_arrival(busy.here).value(), 400ms);
}

// As another rank of this machine; nobody else's connections count, for they go on where all ranks stand still.
TEST(Peer, OnlyConnectionsOfTheseProcessesAreHeard) {
  TcpPair ours("127.0.0.5");
  std::this_thread::sleep_for(600ms);
  Child rank([] {
    TcpPair its("127.0.0.5");
    std::string data = "data";
    if (its.there.write_some(data)) pause();
  });
  std::this_thread::sleep_for(200ms);
  EXPECT_GE(last_arrival_from(ours.here, {getpid()}).value(), 700ms);
  EXPECT_LT(last_arrival_from(ours.here, {getpid(), rank.pid()}).value(), 500ms);
  EXPECT_FALSE(last_arrival_from(ours.here, {}).has_value());
}

TEST(Peer, WhatIsNoTcpConnectionTellsNothing) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Socket one(ends[0]), other(ends[1]);
  EXPECT_FALSE(last_arrival(one).has_value());
  EXPECT_FALSE(last_arrival(Socket()).has_value());
}

}  // namespace
}  // namespace shardgrad::dist::testing
