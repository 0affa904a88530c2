#pragma once
// Ranks that are told which machines there are, for tests of what connects machines.

#include <sys/socket.h>

#include <string>
#include <vector>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/watch/page_link.h>

namespace shardgrad::dist::testing {

/// One rank of hosts.size(), which can exchange nothing.
class PretendedRank final : public Bootstrap {
 public:
  PretendedRank(int rank, const std::vector<std::string>& hosts)
      : Bootstrap("pretended", rank, int(hosts.size()), RankMap(hosts)) {}
  std::vector<std::string> exchange(const std::string&) override { return std::vector<std::string>(size_t(size())); }
};

/// Both ends of a connection.
inline std::pair<Socket, Socket> connected() {
  int ends[2] = {-1, -1};
  socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends);
  return {Socket(ends[0]), Socket(ends[1])};
}

/// The far end of a connection, which `first_rank` holds.
inline std::vector<PageLink::Far> far_end(Socket socket, int first_rank) {
  std::vector<PageLink::Far> far;
  far.push_back({std::move(socket), first_rank});
  return far;
}

/// So many machines with so many ranks each, by rank.
inline std::vector<std::string> machines_of(int machines, int ranks_each) {
  std::vector<std::string> hosts;
  for (int r = 0; r < machines * ranks_each; ++r) hosts.push_back(concat("machine-", r / ranks_each));
  return hosts;
}

}  // namespace shardgrad::dist::testing
