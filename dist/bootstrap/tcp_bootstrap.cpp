#include <shardgrad/dist/bootstrap/tcp_bootstrap.h>

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/bootstrap/reception.h>
#include <shardgrad/dist/os/peer.h>

namespace shardgrad::dist {
namespace {

using Clock = std::chrono::steady_clock;

// Before there is a context, signals may be blocked for a reader that does not exist yet: they are asked for here.
void check_interrupted() {
  if (Context* context = Context::current()) return context->check_abort();
  sigset_t pending;
  sigpending(&pending);
  for (int number : {SIGINT, SIGTERM})
    if (sigismember(&pending, number))
      fail_as(ErrorKind::rank_failed, "interrupted by a signal while waiting for the other ranks");
}

template <class T> void add_number(std::string& text, T number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// A message from rank 0: the blobs of all ranks, or why the job cannot go on. Neighbours mostly say the same (nothing;
// their machine): such a blob travels once with their number, for it goes to every rank.
std::string pack(const std::vector<std::string>& blobs) {
  std::string text = "b";
  for (size_t r = 0, end; r < blobs.size(); r = end) {
    for (end = r + 1; end < blobs.size() && blobs[end] == blobs[r];) ++end;
    add_number(text, uint32_t(end - r));
    add_number(text, uint64_t(blobs[r].size()));
    text += blobs[r];
  }
  return text;
}

constexpr const char* kNoMessage = "what came from rank 0 is no message of a job";

template <class T> T number_at(const std::string& text, size_t& at) {
  T number = 0;
  SG_CHECK(text.size() - at >= sizeof(number), kNoMessage);
  std::memcpy(&number, text.data() + at, sizeof(number));
  at += sizeof(number);
  return number;
}

std::vector<std::string> unpack(const std::string& text, int count) {
  SG_CHECK(!text.empty() && (text[0] == 'b' || (text[0] == 'e' && text.size() > 1)), kNoMessage);
  if (text[0] == 'e') {
    auto kind = ErrorKind(text[1]);
    bool known = kind >= ErrorKind::internal && kind <= ErrorKind::rank_failed;
    fail_as(known ? kind : ErrorKind::rank_failed, text.substr(2));
  }
  std::vector<std::string> blobs;
  for (size_t at = 1; at < text.size();) {
    auto ranks = number_at<uint32_t>(text, at);
    auto length = number_at<uint64_t>(text, at);
    SG_CHECK(length <= text.size() - at && ranks <= size_t(count) - blobs.size(), kNoMessage);
    blobs.resize(blobs.size() + ranks, text.substr(at, length));
    at += length;
  }
  SG_CHECK(blobs.size() == size_t(count), kNoMessage);
  return blobs;
}

// Those that do not listen any more hear of it when their connection closes.
void tell_error(const std::vector<Socket>& peers, const Error& error) {
  auto deadline = Clock::now() + std::chrono::seconds(1);
  for (const Socket& peer : peers)
    if (peer) try {
        send_frame(peer, concat('e', char(error.kind()), error.what()), until(deadline));
      } catch (const Error&) {
      }
}

int seconds(std::chrono::milliseconds time) {
  return int(std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

[[noreturn]] void fail_missing(const TcpPlace& place, const Reception& reception, bool only_this_machine) {
  fail_as(ErrorKind::rank_failed, "after ", seconds(place.limit), " s, ", list_of(reception.missing()), " of ",
          place.size, " did not come to ", place.host, ":", place.port,
          only_this_machine ? " (where only this machine's processes can)" : "", reception.turned_away(),
          "; look at what those processes say, at their RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and for a ",
          "firewall; SHARDGRAD_RENDEZVOUS_SECONDS sets how long to wait");
}

/// Rank 0's side: the connections to all ranks, by rank; the first is empty.
std::vector<Socket> receive_ranks(const TcpPlace& place, std::vector<std::string>& machines) {
  std::vector<Socket> listeners = listen_on(place.host, place.port);
  bool local = std::ranges::all_of(listeners, is_loopback);
  if (!local && place.token.empty() && place.size > 1)
    std::fprintf(
        stderr,
        "shardgrad: until all ranks have come, whoever reaches %s:%d can take part in this job; to prevent it, "
        "give every rank the same SHARDGRAD_JOB_TOKEN\n",
        place.host.c_str(), place.port);
  Reception reception(std::move(listeners), place.token, place.size, this_machine());
  try {
    for (auto deadline = Clock::now() + place.limit; !reception.missing().empty(); reception.look()) {
      check_interrupted();
      if (Clock::now() > deadline) fail_missing(place, reception, local);
    }
  } catch (const Error& error) {
    tell_error(reception.guests(), error);
    throw;
  }
  machines = reception.machines();
  std::vector<Socket> peers = std::move(reception.guests());
  std::string all = pack(machines);
  for (int r = 1; r < place.size; ++r) send_frame(peers[size_t(r)], all, check_interrupted);
  return peers;
}

/// The other ranks' side. Rank 0 may be late.
std::vector<Socket> go_to_rank_0(const TcpPlace& place, std::vector<std::string>& machines) {
  using namespace std::chrono_literals;
  std::string reason, reply;
  auto give_up_at = [&](Clock::time_point deadline) {
    check_interrupted();
    if (Clock::now() > deadline)
      fail_as(ErrorKind::rank_failed, "rank ", place.rank, " of ", place.size, ": rank 0 did not answer at ",
              place.host, ":", place.port, " for ", seconds(place.limit), " s: ", reason,
              "; is it running, and are MASTER_ADDR and MASTER_PORT those of its machine?");
  };
  std::vector<Socket> peers(1);
  Guest me{place.rank, place.size, this_machine()};
  auto deadline = Clock::now() + place.limit;
  Check check = [&] { give_up_at(deadline); };
  // Thousands may wait for a rank 0 that comes late, and on its own machine: each asks more rarely the longer it waits.
  for (auto pause = 50ms; !(peers[0] = call_host(place.host, place.port, me, place.token, check, reason)); check()) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 5 / 4, 1000ms);
  }
  reason = "it has let this rank in, and is silent since";
  deadline = Clock::now() + place.limit + 5s;  // rank 0's own comes before
  if (!receive_frame(peers[0], reply, check))
    fail_as(ErrorKind::rank_failed, "rank 0 has left the job while it waited for the other ranks");
  machines = unpack(reply, place.size);
  return peers;
}

/// A wait for another rank, which ends with its silence: until there is a context, whose monitor watches the ranks,
/// nobody else would notice a rank that stops.
class Patience {
 public:
  Patience(int rank, std::chrono::milliseconds limit) : rank_(rank), limit_(limit) {}
  void operator()() const {
    check_interrupted();
    if (!Context::current() && Clock::now() > deadline_)
      fail_as(ErrorKind::rank_failed, "rank ", rank_, " has come and then been silent for ", seconds(limit_),
              " s, before its first heartbeat: it has stopped, or its machine or network has");
  }

 private:
  int rank_;
  std::chrono::milliseconds limit_;
  Clock::time_point deadline_ = Clock::now() + limit_;
};

/// A star: rank 0 has a connection to every other rank.
class TcpBootstrap final : public Bootstrap {
 public:
  TcpBootstrap(const TcpPlace& place, std::vector<Socket> peers, const std::vector<std::string>& machines)
      : Bootstrap("tcp", place.rank, place.size, RankMap(machines)), place_(place), peers_(std::move(peers)) {}
  std::string host_of_rank_0() const override { return place_.host; }
  // As the connections have it between rank 0 and other machines: a name may stand for a loopback address on its own
  // machine, and for a service elsewhere.
  std::string address() const override {
    for (size_t r = 0; r < peers_.size(); ++r) {
      bool elsewhere = ranks().node_rank(rank() == 0 ? int(r) : 0) != node_rank();
      if (peers_[r] && elsewhere) return own_address(peers_[r]);
    }
    return {};
  }

  std::vector<std::string> exchange(const std::string& mine) override {
    if (rank() == 0) return collect(mine);
    std::string reply;
    Patience patience(0, place_.limit + std::chrono::seconds(5));  // rank 0's own comes before, and says who it is
    if (!send_frame(peers_[0], mine, patience) || !receive_frame(peers_[0], reply, patience))
      fail_as(ErrorKind::rank_failed, "rank 0 has left the job: its connection to rank ", rank(), " closed");
    return unpack(reply, size());
  }

 private:
  std::vector<std::string> collect(const std::string& mine) try {
    std::vector<std::string> blobs(static_cast<size_t>(size()));
    blobs[0] = mine;
    auto gone = [&](size_t r) {
      fail_as(ErrorKind::rank_failed, "rank ", r, " has left the job: its connection to rank 0 closed");
    };
    for (size_t r = 1; r < blobs.size(); ++r)
      if (!receive_frame(peers_[r], blobs[r], Patience(int(r), place_.limit))) gone(r);
    std::string reply = pack(blobs);
    for (size_t r = 1; r < blobs.size(); ++r)
      if (!send_frame(peers_[r], reply, Patience(int(r), place_.limit))) gone(r);
    return blobs;
  } catch (const Error& error) {
    tell_error(peers_, error);
    throw;
  }

  TcpPlace place_;
  std::vector<Socket> peers_;  // on rank 0 by rank, elsewhere rank 0's alone
};

}  // namespace

std::unique_ptr<Bootstrap> make_tcp_bootstrap(const TcpPlace& place) {
  std::vector<std::string> machines;
  std::vector<Socket> peers = place.rank == 0 ? receive_ranks(place, machines) : go_to_rank_0(place, machines);
  // Neighbours in number share a machine, however RANK deals them out: rows of a mesh and parts of a sum do then. Rank
  // 0 stays what it is, for its machine comes first.
  std::vector<int> order = RankMap(machines).by_node();
  TcpPlace numbered = place;
  numbered.rank = int(std::ranges::find(order, place.rank) - order.begin());
  if (place.rank == 0) {
    peers = in_order(std::move(peers), order);
    if (!std::ranges::is_sorted(order))
      std::fprintf(stderr,
                   "shardgrad: ranks are numbered machine by machine, and those of a machine in the order of their "
                   "RANK, which itself deals them to the machines in turn\n");
  }
  return std::make_unique<TcpBootstrap>(numbered, std::move(peers), in_order(std::move(machines), order));
}

std::optional<TcpPlace> tcp_place(const EnvironmentLookup& variable) {
  const char *rank = variable("RANK"), *size = variable("WORLD_SIZE");
  const char *host = variable("MASTER_ADDR"), *port = variable("MASTER_PORT");
  if (!rank && !size) return {};
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
  if (const char* token = variable("SHARDGRAD_JOB_TOKEN")) {
    place.token = token;
    SG_CHECK(place.token.size() >= 16, "SHARDGRAD_JOB_TOKEN has ", place.token.size(), " characters, which can be ",
             "guessed; at least 16 are needed, for instance what this prints: openssl rand -hex 16");
  }
  place.limit = rendezvous_limit(variable);
  return place;
}

std::unique_ptr<Bootstrap> tcp_bootstrap_from_environment() {
  std::optional<TcpPlace> place = tcp_place(std::getenv);
  return place ? make_tcp_bootstrap(*place) : nullptr;
}

}  // namespace shardgrad::dist
