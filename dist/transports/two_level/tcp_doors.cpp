#include <chrono>
#include <sstream>
#include <thread>
#include <tuple>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/bootstrap/host.h>
#include <shardgrad/dist/transports/two_level/socket_link.h>

namespace shardgrad::dist::two_level {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// How long a rank may compute before it comes to where it answers. Its silence would end the job.
constexpr std::chrono::seconds kNoLimit = std::chrono::hours(24 * 365);

/// Where the ranks listen, by rank.
struct Listening {
  std::vector<std::string> addresses;
  std::vector<int> ports;
  std::string token;
};

/// Callers that came for another group, or before they were asked for, wait in here.
class Waiting final : public Host {
 public:
  Waiting(std::vector<Socket> listeners, std::string token, int rank, int size)
      : Host(std::move(listeners), std::move(token), rank, "this job's random word"), rank_(rank), size_(size) {}

  /// The connection of a group with a rank; empty when it has not come.
  Socket take(int64_t group, int rank) {
    auto found = come_.extract({group, rank});
    return found ? std::move(found.mapped()) : Socket();
  }

 private:
  size_t expected() const override { return size_t(size_); }
  std::string contradiction(const Guest& guest) const override {
    if (guest.count == size_ && guest.number >= 0 && guest.number < rank_ && guest.group > 0) return {};
    return concat("it says that it is rank ", guest.number, " of ", guest.count, " in group ", guest.group,
                  ", which does not call rank ", rank_, " of ", size_);
  }
  void welcome(const Guest& guest, Socket socket) override {
    come_.insert_or_assign({guest.group, guest.number}, std::move(socket));
  }

  int rank_, size_;
  std::map<std::pair<int64_t, int>, Socket> come_;
};

class TcpDoors final : public Doors {
 public:
  TcpDoors(std::vector<Socket> listeners, Listening all, int rank, std::chrono::seconds reach)
      : all_(std::move(all)), reach_(reach), waiting_(std::move(listeners), all_.token, rank, int(all_.ports.size())) {}

  Socket open(int64_t group, int rank, int peer, const Check& check) override {
    return rank < peer ? call(group, rank, peer, check) : await(group, rank, peer, check);
  }

 private:
  Socket call(int64_t group, int rank, int peer, const Check& check) const {
    Guest me{rank, int(all_.ports.size()), this_machine(), group};
    const std::string& address = all_.addresses[size_t(peer)];
    int port = all_.ports[size_t(peer)];
    std::string there = concat("rank ", peer, " at ", address, ":", port), reason;
    auto closes = 40 * reach_.count();
    for (auto deadline = Clock::now() + reach_;; check()) {
      if (Socket socket = connect_to(address, port, 4 * reach_, reason, check)) {
        if ((socket = introduce(std::move(socket), there, me, all_.token, check, reason, kNoLimit))) return socket;
        reason = "what listens there closes the connections";
        // It is there, or its end is a cause, which the control channel brings. Something else may close for ever.
        if (--closes > 0) deadline = Clock::now() + reach_;
      }
      if (Clock::now() > deadline)
        fail_as(ErrorKind::rank_failed, "rank ", rank, " cannot reach ", there, ": ", reason,
                "; is there a firewall or a proxy between the machines? Ranks listen on any free port");
      std::this_thread::sleep_for(100ms);
    }
  }

  // Groups have threads of their own, any of which hears those that come for others.
  Socket await(int64_t group, int rank, int peer, const Check& check) {
    for (auto deadline = Clock::now() + reach_;; std::this_thread::sleep_for(1ms), check()) {
      std::lock_guard lock(mutex_);
      waiting_.look(0ms);
      if (Socket socket = waiting_.take(group, peer)) return socket;
      if (waiting_.lacks().empty()) deadline = Clock::now() + reach_;
      if (Clock::now() > deadline)
        fail_as(ErrorKind::missing, "rank ", rank, " cannot take the connection of rank ", peer, ": ", waiting_.lacks(),
                "; raise this process's limit (ulimit -n)");
    }
  }

  const Listening all_;
  const std::chrono::seconds reach_;
  std::mutex mutex_;  // of what follows
  Waiting waiting_;
};

}  // namespace

std::shared_ptr<Doors> make_tcp_doors(Bootstrap& bootstrap, std::chrono::seconds reach) {
  const RankMap& map = bootstrap.ranks();
  Listening all;
  std::vector<std::string> addresses = bootstrap.exchange(bootstrap.address());
  for (int r = 0; r < bootstrap.size(); ++r)
    all.addresses.push_back(addresses[size_t(map.global_rank(map.node_rank(r), 0))]);
  std::vector<Socket> listeners;
  std::string error;
  try {
    allow_descriptors(size_t(map.node_count()),
                      concat("a rank has a connection to one of each of ", map.node_count() - 1, " other machines"));
    const std::string& mine = all.addresses[size_t(bootstrap.rank())];
    SG_CHECK(!mine.starts_with("fe80"), "MASTER_ADDR reaches rank 0 by the link-local address ", mine,
             ", which machines name differently; give one that is the same for all");
    listeners = listen_on(mine, 0);
  } catch (const Error& e) {
    error = e.what();
  }
  if (error = bootstrap.any_error(error); !error.empty()) fail_as(ErrorKind::missing, error);
  std::string word = bootstrap.rank() == 0 ? random_word() : "-";
  for (const std::string& offer : bootstrap.exchange(concat(port_of(listeners[0]), ' ', word))) {
    std::istringstream words(offer);
    words >> all.ports.emplace_back() >> word;
    if (all.ports.size() == 1) all.token = word;
  }
  return std::make_shared<TcpDoors>(std::move(listeners), std::move(all), bootstrap.rank(), reach);
}

}  // namespace shardgrad::dist::two_level
