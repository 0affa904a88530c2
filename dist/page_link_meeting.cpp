// How the machines of a job find rank 0 and connect their control pages to its one; see page_link.h.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <chrono>
#include <iterator>
#include <random>
#include <sstream>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/page_link.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// How long the machines may take to connect.
constexpr auto kPatience = 20s;

/// Addresses by which other machines may reach this one. That of a container or a bridge may belong to another machine
/// too, so who connects is asked for a word that only this job knows.
std::vector<std::string> my_addresses() {
  std::vector<std::string> result;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return result;
  for (ifaddrs* one = all; one; one = one->ifa_next) {
    char text[INET6_ADDRSTRLEN] = {};
    if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET)
      inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof(text));
    if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET6)
      inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr, text, sizeof(text));
    std::string address = text;
    if (!address.empty() && !address.starts_with("127.") && !address.starts_with("fe80") && address != "::1")
      result.push_back(address);
  }
  freeifaddrs(all);
  result.push_back("127.0.0.1");  // machines that are pretended on one
  return result;
}

Check until(Clock::time_point deadline) {
  return [deadline] {
    if (Clock::now() > deadline) fail_as(ErrorKind::rank_failed, "no answer");
  };
}

/// Machine `node`'s connection to rank 0.
Socket call_rank_0(const std::string& token, int port, const std::vector<std::string>& addresses, int node) {
  std::string reasons;
  for (const std::string& address : addresses) try {
      std::string reason, answer;
      Socket socket = connect_to(address, port, 2s, reason);
      Check check = until(Clock::now() + 3s);
      if (socket && send_frame(socket, concat(token, ' ', node), check) && receive_frame(socket, answer, check) &&
          answer == token)
        return socket;
      reasons += concat(" ", address, ": ", socket ? "not rank 0" : reason, ";");
    } catch (const Error& error) {
      reasons += concat(" ", address, ": ", error.what(), ";");
    }
  fail_as(ErrorKind::rank_failed, "rank 0's machine cannot be reached on port ", port, ":", reasons);
}

/// Rank 0's connections, by machine; the first is empty.
std::vector<Socket> answer_calls(const Socket& listener, const std::string& token, int nodes) {
  std::vector<Socket> sockets(static_cast<size_t>(nodes));
  auto deadline = Clock::now() + kPatience;
  for (int missing = nodes - 1; missing > 0 && Clock::now() < deadline;) {
    Socket socket = accept_from(listener);
    if (!socket) {
      wait_readable(listener);
      continue;
    }
    try {
      std::string text, word;
      size_t node = 0;
      Check check = until(Clock::now() + 1s);
      if (!receive_frame(socket, text, check)) continue;
      if (!(std::istringstream(text) >> word >> node) || word != token || node == 0 || node >= sockets.size()) continue;
      if (!send_frame(socket, token, check)) continue;
      sockets[node] = std::move(socket);
      --missing;
    } catch (const Error&) {  // not one of ours
    }
  }
  for (int node = 1; node < nodes; ++node)
    if (!sockets[size_t(node)])
      fail_as(ErrorKind::rank_failed, "machine ", node, " of ", nodes, " did not call rank 0");
  return sockets;
}

std::vector<int> ranks_where(const RankMap& map, const std::function<bool(int node)>& wanted) {
  std::vector<int> ranks;
  for (int r = 0; r < map.world_size(); ++r)
    if (wanted(map.node_rank(r))) ranks.push_back(r);
  return ranks;
}

std::string random_word() {
  std::random_device random;
  return concat(std::hex, random(), random(), random());
}

}  // namespace

std::unique_ptr<PageLink> link_pages(Bootstrap& bootstrap, const ControlPage& page, std::string& reason) {
  const RankMap& map = bootstrap.ranks();
  int mine = bootstrap.node_rank(), nodes = map.node_count();
  if (nodes == 1 || !reason.empty()) return nullptr;
  Socket listener;
  std::string offer, error;
  std::vector<PageLink::Far> far;
  if (bootstrap.rank() == 0) {
    listener = listen_on(0);
    offer = concat(random_word(), ' ', port_of(listener));
    for (const std::string& address : my_addresses()) offer += " " + address;
  }
  std::istringstream words(bootstrap.exchange(offer)[0]);
  std::string token;
  int port = 0;
  words >> token >> port;
  std::vector<std::string> addresses{std::istream_iterator<std::string>(words), {}};
  try {
    if (bootstrap.rank() == 0) {
      std::vector<Socket> sockets = answer_calls(listener, token, nodes);
      for (int node = 1; node < nodes; ++node)
        far.push_back({std::move(sockets[size_t(node)]), map.global_rank(node, 0),
                       ranks_where(map, [node](int other) { return other != node; })});
    } else if (bootstrap.local_rank() == 0) {
      far.push_back({call_rank_0(token, port, addresses, mine), 0,
                     ranks_where(map, [mine](int other) { return other == mine; })});
    }
  } catch (const Error& e) {
    error = e.what();
  }
  for (const std::string& e : bootstrap.exchange(error))
    if (!e.empty() && reason.empty()) reason = e;
  if (!reason.empty() || far.empty()) return nullptr;
  return std::make_unique<PageLink>(page, bootstrap, std::move(far));
}

}  // namespace shardgrad::dist
