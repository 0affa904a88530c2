#include <shardgrad/dist/transports/two_level/socket_link.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>

#include <shardgrad/core/error.h>

namespace shardgrad::dist::two_level {
namespace {

using Clock = std::chrono::steady_clock;

/// Why no more can be exchanged, and what most often is its cause: a rank that has gone closes its connections, and one
/// that has diverged says something else. Who did what is the control channel's to say, which knows it this soon.
struct Lost {
  std::string why;
  int diverged_lane;
  Clock::time_point at;
};
constexpr std::chrono::seconds kCausePatience{15};

/// What comes before a message's bytes.
struct Head {
  uint64_t fingerprint, bytes;
};

struct Message {
  Head head;
  int lane;
  std::byte* data;  // of one that is sent, only read
  size_t done = 0;  // of head and data together
  size_t all() const { return sizeof(Head) + head.bytes; }
};

struct Peer {
  int rank = 0;  // in the world
  Socket socket;
  std::deque<Message> out, in;
  Head heard{};  // of the message that comes in
};

class SocketLink final : public Link {
 public:
  SocketLink(std::shared_ptr<Doors> doors, int64_t group, std::vector<int> members, int rank,
             std::shared_ptr<Control> control)
      : doors_(std::move(doors)),
        group_(group),
        members_(std::move(members)),
        rank_(rank),
        control_(std::move(control)) {}

  void send(const Call& call, int peer, const void* data, size_t bytes) override {
    auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(data));
    if (bytes > 0) peers_[peer].out.push_back({{call.fingerprint, bytes}, call.lane, from});
  }
  void receive(const Call& call, int peer, void* data, size_t bytes) override {
    if (bytes > 0) peers_[peer].in.push_back({{call.fingerprint, bytes}, call.lane, static_cast<std::byte*>(data)});
  }

  void complete(const Check& check) override try {
    for (auto& [number, peer] : peers_)
      if (!peer.socket && !(peer.in.empty() && peer.out.empty()))
        peer.socket = doors_->open(group_, members_[size_t(rank_)], peer.rank = members_[size_t(number)], check);
    for (;;) {
      bool busy = false, moved = false;
      for (auto& [number, peer] : peers_) {
        while (!peer.out.empty() && write(peer, peer.out.front())) moved = true;
        while (!peer.in.empty() && read(peer, peer.in.front())) moved = true;
        busy |= !peer.out.empty() || !peer.in.empty();
      }
      if (!busy) return;
      check();
      if (!moved) wait();
    }
  } catch (...) {
    for (auto& [number, peer] : peers_) {  // whose memory may be gone
      peer.out.clear();
      peer.in.clear();
    }
    throw;
  }

  std::unique_ptr<Link> join(int64_t group, const std::vector<int>& members, int rank) override {
    std::vector<int> world_ranks;
    for (int member : members) world_ranks.push_back(members_[size_t(member)]);
    return make_socket_link(doors_, group, std::move(world_ranks), rank, control_);
  }

 private:
  // Each moves what can be moved now, takes the message off when it is through, and tells whether anything moved.
  bool write(Peer& peer, Message& message) {
    iovec parts[2];
    int count = rest_of(message, &message.head, parts);
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = size_t(count);
    return moved(peer, peer.out, sendmsg(peer.socket.descriptor(), &header, MSG_NOSIGNAL));
  }
  bool read(Peer& peer, Message& message) {
    iovec parts[2];
    int count = rest_of(message, &peer.heard, parts);
    if (message.done < sizeof(Head)) count = 1;  // it says whether the bytes are these
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = size_t(count);
    bool had_head = message.done >= sizeof(Head);
    ssize_t got = recvmsg(peer.socket.descriptor(), &header, 0);
    if (got == 0) got = -1, errno = ECONNRESET;
    if (got > 0 && !had_head && message.done + size_t(got) == sizeof(Head) &&
        std::memcmp(&peer.heard, &message.head, sizeof(Head)) != 0) {
      lose("", message.lane);
      return false;
    }
    return moved(peer, peer.in, got);
  }
  static int rest_of(const Message& message, Head* head, iovec parts[2]) {
    int count = 0;
    if (message.done < sizeof(Head))
      parts[count++] = {reinterpret_cast<char*>(head) + message.done, sizeof(Head) - message.done};
    size_t data = std::max(message.done, sizeof(Head)) - sizeof(Head);
    parts[count++] = {message.data + data, message.head.bytes - data};
    return count;
  }
  bool moved(const Peer& peer, std::deque<Message>& queue, ssize_t bytes) {
    if (bytes < 0) {
      if (errno != EAGAIN && errno != EINTR)
        lose(concat("the connection of ranks ", members_[size_t(rank_)], " and ", peer.rank,
                    " is gone: ", std::strerror(errno)));
      return false;
    }
    queue.front().done += size_t(bytes);
    if (queue.front().done == queue.front().all()) queue.pop_front();
    return bytes > 0;
  }

  void lose(std::string why, int diverged_lane = -1) {
    if (!lost_) lost_ = Lost{std::move(why), diverged_lane, Clock::now()};
  }

  void wait() {
    if (lost_) {
      if (Clock::now() > lost_->at + kCausePatience) {
        if (lost_->diverged_lane >= 0) control_->throw_diverged(lost_->diverged_lane);
        fail_as(ErrorKind::rank_failed, lost_->why);
      }
      usleep(1000);
      return;
    }
    polled_.clear();
    for (auto& [number, peer] : peers_) {
      short events = short((peer.out.empty() ? 0 : POLLOUT) | (peer.in.empty() ? 0 : POLLIN));
      if (events) polled_.push_back({peer.socket.descriptor(), events, 0});
    }
    poll(polled_.data(), nfds_t(polled_.size()), 10);
  }

  std::shared_ptr<Doors> doors_;
  int64_t group_;
  std::vector<int> members_;
  int rank_;
  std::shared_ptr<Control> control_;
  std::map<int, Peer> peers_;  // by rank in the group
  std::vector<pollfd> polled_;
  std::optional<Lost> lost_;
};

class LocalDoors final : public Doors {
 public:
  Socket open(int64_t group, int rank, int peer, const Check&) override {
    std::lock_guard lock(mutex_);
    auto made = ends_.extract({group, std::min(rank, peer), std::max(rank, peer)});
    if (made) return std::move(made.mapped());
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
      fail_as(ErrorKind::missing, "no connection between ranks ", rank, " and ", peer, ": ", std::strerror(errno));
    ends_.emplace(std::tuple(group, std::min(rank, peer), std::max(rank, peer)), Socket(ends[1]));
    return Socket(ends[0]);
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int64_t, int, int>, Socket> ends_;  // of which the other rank has not asked yet
};

}  // namespace

std::shared_ptr<Doors> make_local_doors() { return std::make_shared<LocalDoors>(); }

std::unique_ptr<Link> make_socket_link(std::shared_ptr<Doors> doors, int64_t group, std::vector<int> members, int rank,
                                       std::shared_ptr<Control> control) {
  return std::make_unique<SocketLink>(std::move(doors), group, std::move(members), rank, std::move(control));
}

}  // namespace shardgrad::dist::two_level
