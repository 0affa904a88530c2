// How the machines of a job find rank 0 and connect their control pages to its one; see page_link.h.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <chrono>
#include <iterator>
#include <set>
#include <sstream>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/reception.h>
#include <shardgrad/dist/os/peer.h>
#include <shardgrad/dist/watch/page_link.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// How long the machines may take to connect.
constexpr auto kMeetingPatience = 20s;

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
  return result;
}

/// Those of the other machines, by which data may come from there. Containers may have that of their host, as others
/// do: what comes from it says nothing of a machine.
std::set<std::string> addresses_of_others(Bootstrap& bootstrap, const std::vector<PageLink::Far>& far) {
  std::vector<std::string> own;
  if (!far.empty()) own = my_addresses();
  for (const PageLink::Far& one : far) own.push_back(own_address(one.socket));
  std::string offer;
  for (const std::string& address : own) offer += address + " ";
  std::set<std::string> others;
  for (const std::string& list : bootstrap.exchange(offer)) {
    std::istringstream addresses(list);
    others.insert(std::istream_iterator<std::string>(addresses), {});
  }
  for (const PageLink::Far& one : far) others.insert(other_address(one.socket));
  for (const std::string& address : own) others.erase(address);
  others.erase("");
  return others;
}

/// Machine `node`'s connection to rank 0.
Socket call_rank_0(const std::string& token, int port, const std::vector<std::string>& addresses, const Guest& me) {
  std::string reasons;
  for (const std::string& address : addresses) try {
      std::string reason;
      if (Socket socket = call_host(
              address, port, me, token, [] {}, reason))
        return socket;
      reasons += concat(" ", address, ": ", reason, ";");
    } catch (const Error& error) {
      reasons += concat(" ", address, ": ", error.what(), ";");
    }
  fail_as(ErrorKind::rank_failed, "rank 0's machine cannot be reached on port ", port, ":", reasons);
}

/// Rank 0's connections, by machine; the first is empty.
std::vector<Socket> answer_calls(std::vector<Socket> listeners, const std::string& token, int nodes) {
  Reception reception(std::move(listeners), token, nodes, this_machine());
  auto deadline = Clock::now() + kMeetingPatience;
  while (!reception.missing().empty() && Clock::now() < deadline) reception.look();
  std::vector<int> missing = reception.missing();
  if (!missing.empty())
    fail_as(ErrorKind::rank_failed, "machine ", missing[0], " of ", nodes, " did not call rank 0",
            reception.turned_away());
  return std::move(reception.guests());
}

}  // namespace

std::unique_ptr<PageLink> link_pages(Bootstrap& bootstrap, const ControlPage& page, std::string& reason) {
  const RankMap& map = bootstrap.ranks();
  int mine = bootstrap.node_rank(), nodes = map.node_count();
  if (nodes == 1 || !reason.empty()) return nullptr;
  std::vector<Socket> listeners;
  std::string offer, error, host = bootstrap.host_of_rank_0();
  std::vector<PageLink::Far> far;
  if (bootstrap.rank() == 0) {
    listeners = listen_on(host, 0);
    offer = concat(random_word(), ' ', port_of(listeners[0]));
    for (const std::string& address : my_addresses()) offer += " " + address;
    offer += " 127.0.0.1";  // machines that are pretended on one
  }
  std::istringstream words(bootstrap.exchange(offer)[0]);
  std::string token;
  int port = 0;
  words >> token >> port;
  std::vector<std::string> addresses{std::istream_iterator<std::string>(words), {}};
  if (!host.empty()) addresses = {host};  // nobody listens elsewhere
  try {
    if (bootstrap.rank() == 0) {
      std::vector<Socket> sockets = answer_calls(std::move(listeners), token, nodes);
      for (int node = 1; node < nodes; ++node)
        far.push_back({std::move(sockets[size_t(node)]), map.global_rank(node, 0)});
    } else if (bootstrap.local_rank() == 0) {
      far.push_back({call_rank_0(token, port, addresses, {mine, nodes, this_machine()}), 0});
    }
  } catch (const Error& e) {
    error = e.what();
  }
  reason = bootstrap.any_error(error);
  if (!reason.empty()) return nullptr;
  std::set<std::string> others = addresses_of_others(bootstrap, far);
  return far.empty() ? nullptr : std::make_unique<PageLink>(page, bootstrap, std::move(far), std::move(others));
}

}  // namespace shardgrad::dist
