#include <shardgrad/dist/tcp_bootstrap.h>

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/sockets.h>

namespace shardgrad::dist {
namespace {

using Clock = std::chrono::steady_clock;

/// What a rank says first.
struct Hello {
  char magic[16] = "shardgrad-tcp-1";
  int32_t rank = 0, size = 0;
  char machine[232] = {};
};

// Before there is a context, signals may be blocked for a reader that does not exist yet: they are asked for here.
void check_interrupted() {
  if (Context* context = Context::current()) return context->check_abort();
  sigset_t pending;
  sigpending(&pending);
  for (int number : {SIGINT, SIGTERM})
    if (sigismember(&pending, number))
      fail_as(ErrorKind::rank_failed, "interrupted by a signal while waiting for the other ranks");
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < 20; ++i) text += concat(i ? ", " : "", ranks[i]);
  return ranks.size() > 20 ? concat(text, ", … (", ranks.size(), " in all)") : text;
}

// A message from rank 0: the blobs of all ranks, or why the job cannot go on.
std::string pack(const std::vector<std::string>& blobs) {
  std::string text = "b";
  for (const std::string& blob : blobs) {
    uint64_t length = blob.size();
    text.append(reinterpret_cast<const char*>(&length), sizeof(length)) += blob;
  }
  return text;
}

std::vector<std::string> unpack(const std::string& text) {
  if (text.starts_with('e')) fail_as(ErrorKind(text.at(1)), text.substr(2));
  std::vector<std::string> blobs;
  for (size_t at = 1; at + 8 <= text.size();) {
    uint64_t length = 0;
    std::memcpy(&length, text.data() + at, sizeof(length));
    blobs.push_back(text.substr(at + 8, length));
    at += 8 + length;
  }
  return blobs;
}

void tell_error(const std::vector<Socket>& peers, const Error& error) {
  for (const Socket& peer : peers)
    if (peer) try {
        send_frame(peer, concat('e', char(error.kind()), error.what()), [] {});
      } catch (const Error&) {  // it hears of it when the connection closes
      }
}

/// Rank 0's side of the meeting: everybody comes, says who it is, and waits for the answer.
class Reception {
 public:
  explicit Reception(const TcpPlace& place)
      : place_(place), listener_(listen_on(place.port)), peers_(size_t(place.size)), machines_(size_t(place.size)) {
    machines_[0] = this_machine();
  }

  /// The connections to all ranks, by rank; the first is empty.
  std::vector<Socket> meet() try {
    for (auto deadline = Clock::now() + place_.limit; !missing().empty();) {
      check_interrupted();
      while (Socket socket = accept_from(listener_)) newcomers_.push_back({std::move(socket), ""});
      std::erase_if(newcomers_, [this](Newcomer& newcomer) { return !listen_to(newcomer); });
      if (Clock::now() > deadline) fail_missing();
      wait_readable(newcomers_.empty() ? listener_ : newcomers_.back().socket);
    }
    for (int r = 1; r < place_.size; ++r) send_frame(peers_[size_t(r)], pack(machines_), check_interrupted);
    return std::move(peers_);
  } catch (const Error& error) {
    tell_error(peers_, error);
    throw;
  }
  const std::vector<std::string>& machines() const { return machines_; }

 private:
  struct Newcomer {
    Socket socket;
    std::string bytes;
  };

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int r = 1; r < place_.size; ++r)
      if (!peers_[size_t(r)]) ranks.push_back(r);
    return ranks;
  }

  [[noreturn]] void fail_missing() const {
    fail_as(ErrorKind::rank_failed, "after ", std::chrono::duration_cast<std::chrono::seconds>(place_.limit).count(),
            " s, ", list_of(missing()), " of ", place_.size, " did not come to ", place_.host, ":", place_.port,
            "; look at what those processes say, at their RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and for a ",
            "firewall; SHARDGRAD_RENDEZVOUS_SECONDS sets how long to wait");
  }

  // False when it is done with: it has said who it is, has gone, or is no rank at all.
  bool listen_to(Newcomer& newcomer) {
    Hello hello, expected;
    if (!newcomer.socket.read_some(newcomer.bytes, sizeof(Hello) - newcomer.bytes.size())) return false;
    size_t known = std::min(newcomer.bytes.size(), sizeof(hello.magic));
    if (std::memcmp(newcomer.bytes.data(), expected.magic, known) != 0) return false;
    if (newcomer.bytes.size() < sizeof(Hello)) return true;
    std::memcpy(&hello, newcomer.bytes.data(), sizeof(hello));
    hello.machine[sizeof(hello.machine) - 1] = 0;
    admit(hello, std::move(newcomer.socket));
    return false;
  }

  void admit(const Hello& hello, Socket socket) {
    auto refuse = [&](const std::string& why) {
      std::vector<Socket> one;
      one.push_back(std::move(socket));
      Error error(ErrorKind::input, why);
      tell_error(one, error);
      throw error;
    };
    if (hello.size != place_.size)
      refuse(concat("rank 0 was started with WORLD_SIZE=", place_.size, ", rank ", hello.rank, " on ", hello.machine,
                    " with WORLD_SIZE=", hello.size, "; give every process the same"));
    if (hello.rank < 0 || hello.rank >= place_.size)
      refuse(concat("a process on ", hello.machine, " has RANK=", hello.rank, ", which WORLD_SIZE=", place_.size,
                    " does not allow"));
    auto rank = size_t(hello.rank);
    if (rank == 0 || peers_[rank])
      refuse(concat("two processes have RANK=", rank, ": on ", machines_[rank], " and on ", hello.machine,
                    "; give every process its own"));
    machines_[rank] = hello.machine;
    peers_[rank] = std::move(socket);
  }

  const TcpPlace& place_;
  Socket listener_;
  std::vector<Newcomer> newcomers_;
  std::vector<Socket> peers_;
  std::vector<std::string> machines_;
};

// The other ranks' side. Rank 0 may be late.
Socket come_to_rank_0(const TcpPlace& place) {
  using namespace std::chrono_literals;
  std::string reason;
  for (auto deadline = Clock::now() + place.limit;; std::this_thread::sleep_for(50ms)) {
    check_interrupted();
    Socket socket = connect_to(place.host, place.port, 3s, reason);
    if (socket) {
      Hello hello;
      hello.rank = place.rank;
      hello.size = place.size;
      this_machine().copy(hello.machine, sizeof(hello.machine) - 1);
      std::string bytes(reinterpret_cast<const char*>(&hello), sizeof(hello));
      while (!bytes.empty() && socket.write_some(bytes)) wait_writable(socket);
      return socket;
    }
    if (Clock::now() > deadline)
      fail_as(ErrorKind::rank_failed, "rank ", place.rank, " of ", place.size, ": rank 0 did not answer at ",
              place.host, ":", place.port, " for ",
              std::chrono::duration_cast<std::chrono::seconds>(place.limit).count(), " s: ", reason,
              "; is it running, and are MASTER_ADDR and MASTER_PORT those of its machine?");
  }
}

/// A star: rank 0 has a connection to every other rank.
class TcpBootstrap final : public Bootstrap {
 public:
  TcpBootstrap(const TcpPlace& place, std::vector<Socket> peers, const std::vector<std::string>& machines)
      : Bootstrap("tcp", place.rank, place.size, RankMap(machines)), peers_(std::move(peers)) {}

  std::vector<std::string> exchange(const std::string& mine) override {
    if (rank() == 0) return collect(mine);
    std::string reply;
    if (!send_frame(peers_[0], mine, check_interrupted) || !receive_frame(peers_[0], reply, check_interrupted))
      fail_as(ErrorKind::rank_failed, "rank 0 has left the job: its connection to rank ", rank(), " closed");
    return unpack(reply);
  }

 private:
  std::vector<std::string> collect(const std::string& mine) try {
    std::vector<std::string> blobs(static_cast<size_t>(size()));
    blobs[0] = mine;
    auto gone = [&](size_t r) {
      fail_as(ErrorKind::rank_failed, "rank ", r, " has left the job: its connection to rank 0 closed");
    };
    for (size_t r = 1; r < blobs.size(); ++r)
      if (!receive_frame(peers_[r], blobs[r], check_interrupted)) gone(r);
    std::string reply = pack(blobs);
    for (size_t r = 1; r < blobs.size(); ++r)
      if (!send_frame(peers_[r], reply, check_interrupted)) gone(r);
    return blobs;
  } catch (const Error& error) {
    tell_error(peers_, error);
    throw;
  }

  std::vector<Socket> peers_;  // on rank 0 by rank, elsewhere rank 0's alone
};

int number_of(const char* name, const char* text, int least, int most) {
  int value = 0;
  const char* end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, value);
  SG_CHECK(error == std::errc() && stop == end && value >= least && value <= most, name, " is '", text,
           "'; it must be a number from ", least, " to ", most);
  return value;
}

}  // namespace

std::unique_ptr<Bootstrap> make_tcp_bootstrap(const TcpPlace& place) {
  if (place.rank == 0) {
    Reception reception(place);
    std::vector<Socket> peers = reception.meet();
    return std::make_unique<TcpBootstrap>(place, std::move(peers), reception.machines());
  }
  std::vector<Socket> peers;
  peers.push_back(come_to_rank_0(place));
  std::string reply;
  if (!receive_frame(peers[0], reply, check_interrupted))
    fail_as(ErrorKind::rank_failed, "rank 0 has left the job while it waited for the other ranks");
  return std::make_unique<TcpBootstrap>(place, std::move(peers), unpack(reply));
}

std::unique_ptr<Bootstrap> tcp_bootstrap_from_environment() {
  const char *rank = std::getenv("RANK"), *size = std::getenv("WORLD_SIZE");
  const char *host = std::getenv("MASTER_ADDR"), *port = std::getenv("MASTER_PORT");
  if (!rank && !size) return nullptr;
  std::string missing;
  for (auto [name, value] :
       {std::pair("RANK", rank), {"WORLD_SIZE", size}, {"MASTER_ADDR", host}, {"MASTER_PORT", port}})
    if (!value) missing += concat(missing.empty() ? "" : ", ", name);
  SG_CHECK(missing.empty(), rank ? "RANK" : "WORLD_SIZE", " is set, but not ", missing,
           ": ranks that meet by TCP need RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; unset all of them to start "
           "otherwise");
  TcpPlace place;
  place.size = number_of("WORLD_SIZE", size, 1, 1 << 20);
  place.rank = number_of("RANK", rank, 0, place.size - 1);
  place.host = host;
  place.port = number_of("MASTER_PORT", port, 1, 65535);
  if (const char* limit = std::getenv("SHARDGRAD_RENDEZVOUS_SECONDS"))
    place.limit = std::chrono::seconds(number_of("SHARDGRAD_RENDEZVOUS_SECONDS", limit, 1, 1 << 20));
  return make_tcp_bootstrap(place);
}

}  // namespace shardgrad::dist
