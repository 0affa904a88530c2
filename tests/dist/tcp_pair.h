#pragma once
// Both ends of a TCP connection within this machine, whose addresses stand for machines: 127.0.0.2 is not 127.0.0.3.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>

#include <shardgrad/dist/os/sockets.h>

namespace shardgrad::dist::testing {

/// Whether ::1 is an address of this machine.
inline bool has_ipv6() {
  Socket socket(::socket(AF_INET6, SOCK_STREAM, 0));
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  return socket && bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
}

/// `here` is the end to whose eyes the other one is at `there_at`.
struct TcpPair {
  explicit TcpPair(const std::string& there_at = "127.0.0.1") {
    std::vector<Socket> listeners = listen_on(there_at, 0);
    std::string reason;
    here = connect_to(there_at, port_of(listeners.at(0)), std::chrono::seconds(1), reason);
    EXPECT_TRUE(here) << reason;
    for (int i = 0; i < 100 && !there; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      there = accept_from(listeners.at(0), reason);
    EXPECT_TRUE(there) << reason;
  }
  Socket here, there;
};

}  // namespace shardgrad::dist::testing
