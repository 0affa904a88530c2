#include <shardgrad/dist/watch/page_link.h>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/peer.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/watch/page_wire.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookEvery = 50ms, kBeatsEvery = 1000ms;
/// Heartbeats of another machine are late after this.
constexpr auto kBeatsAreLate = 1500ms;
/// For so long after a machine's own last sign the data of others count as its heartbeats. Where that has stopped, the
/// others mostly wait for it soon, but may also go on, as libraries do that ask each other every second.
constexpr auto kOthersCount = 60s;
/// Read at once, so that no inbox grows.
constexpr size_t kReadAtOnce = 16 << 10;

}  // namespace

struct PageLink::Connection {
  Connection(Far far, int machine, int ranks)
      : far(std::move(far)), machine(machine), beats(ranks), last_beats(ranks) {}
  Far far;
  int machine;                // the other end's
  PageNews::Told told;        // the number of the last news it was told
  RankBits beats;             // that it has not been told
  RankBits last_beats;        // that came from there
  Clock::time_point heard{};  // when they came
  Clock::time_point sign{};   // when they or data came from there
  struct Exchanged {
    uint64_t with_it, with_all;
  };
  std::optional<Exchanged> exchanged;  // while they are late, how many bytes had been at the last look
  std::string outbox, inbox;
  bool beats_wait = false, cause_known = false, farewell = false;

  void post(PageMessage kind, const std::string& body) {
    append(outbox, uint64_t(body.size() + 1));
    outbox += char(kind);
    outbox += body;
  }
};

PageLink::PageLink(ControlPage page, const Bootstrap& bootstrap, std::vector<Far> far, std::set<std::string> addresses)
    : page_(std::move(page)),
      map_(bootstrap.ranks()),
      rank_(bootstrap.rank()),
      addresses_(std::move(addresses)),
      news_(page_, map_, rank_) {
  for (Far& one : far) {
    int machine = map_.node_rank(one.first_rank);
    put_first(one.socket);
    connections_.push_back(std::make_unique<Connection>(std::move(one), machine, page_.ranks()));
  }
  // The cause is said on rank 0's machine.
  if (rank_ != 0) page_.header().printed.store(1);
  thread_ = Thread([this] { loop(); });
}

PageLink::~PageLink() {
  stop_.store(true);
  thread_.join();
}

void PageLink::loop() {
  while (!stop_.load()) {
    look(Clock::now());
    std::vector<pollfd> arrivals;
    std::vector<Connection*> open;
    for (auto& connection : connections_) {
      if (connection->far.socket && !send(*connection)) {
        receive(*connection);  // what came before the end is still heard: it may be the farewell
        lose(*connection);
      }
      if (!connection->far.socket) continue;
      short wanted = connection->outbox.empty() ? POLLIN : POLLIN | POLLOUT;
      arrivals.push_back({connection->far.socket.descriptor(), wanted, 0});
      open.push_back(connection.get());
    }
    if (poll(arrivals.data(), arrivals.size(), int(kLookEvery.count())) <= 0) continue;
    std::this_thread::sleep_for(5ms);  // what comes together is one round
    for (size_t i = 0; i < open.size(); ++i)
      if (arrivals[i].revents & ~POLLOUT && !receive(*open[i])) lose(*open[i]);
  }
  flush();
}

// What this page has to tell.
void PageLink::look(Clock::time_point now) {
  if (now >= next_beats_) {
    next_beats_ = now + kBeatsEvery;
    publish_tracers();
    note_beats();
    hear_data(now);
  }
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  news_.look(now);
  if (page_.has_cause()) news_.look_at_states();  // nobody needs to wait for the dead, and who found them said so here
}

void PageLink::note_beats() {
  RankBits all = news_.beats();
  for (auto& connection : connections_) {
    RankBits beats = all;
    if (rank_ == 0)
      for (int local = 0; local < map_.local_size(connection->machine); ++local)
        beats.clear(map_.global_rank(connection->machine, local));
    connection->beats.add(beats);
    connection->beats_wait = connection->beats.any();
  }
}

// Any machine's data count for all, for a while: between some there may be none, as in a gather that goes from
// neighbour to neighbour.
void PageLink::hear_data(Clock::time_point now) {
  auto late = [&](const auto& one) { return one->far.socket && now - one->heard >= kBeatsAreLate; };
  std::map<std::string, uint64_t> by_address;
  if (std::ranges::any_of(connections_, late)) by_address = exchanged_with_machines();
  uint64_t all = 0;
  for (const auto& [address, bytes] : by_address) all += bytes;
  for (auto& connection : connections_) {
    auto before = std::exchange(connection->exchanged, {});
    if (!late(connection)) continue;
    const Socket& socket = connection->far.socket;
    uint64_t with_it = received_through(socket) + by_address[other_address(socket)];
    connection->exchanged = {with_it, all};
    if (!before) continue;
    if (with_it > before->with_it) connection->sign = now;
    if (with_it > before->with_it || (all > before->with_all && now - connection->sign < kOthersCount))
      read_beats(*connection, connection->last_beats);
  }
}

// Not with this one's own address.
std::map<std::string, uint64_t> PageLink::exchanged_with_machines() const {
  std::vector<pid_t> ranks;
  std::vector<const Socket*> links;
  int here = map_.node_rank(rank_);
  for (int local = 0; local < map_.local_size(here); ++local)
    ranks.push_back(page_.row(map_.global_rank(here, local)).pid.load());
  for (auto& connection : connections_)
    if (connection->far.socket) links.push_back(&connection->far.socket);
  std::map<std::string, uint64_t> by_address = exchanged_by_address(ranks, links);
  std::erase_if(by_address, [&](const auto& one) { return !addresses_.contains(one.first); });
  return by_address;
}

// Ranks elsewhere cannot see whether a process here is under a debugger.
void PageLink::publish_tracers() const {
  int here = map_.node_rank(rank_);
  for (int local = 0; local < map_.local_size(here); ++local) {
    Row& row = page_.row(map_.global_rank(here, local));
    if (row.state.load() == RankState::running) row.tracer.store(tracer_of(row.pid.load()));
  }
}

// Whether the other end may say what this rank does: rank 0 speaks for all machines but this one, others for their own.
bool PageLink::tells_of(const Connection& connection, int rank) const {
  int machine = map_.node_rank(rank);
  return rank_ == 0 ? machine == connection.machine : machine != map_.node_rank(rank_);
}

// Puts the next messages into an empty outbox. False when there is nothing to tell. The cause comes before the states
// of those who have failed: elsewhere they would look like ranks that have left for no reason. Heartbeats wait for
// neither.
bool PageLink::fill(Connection& connection) const {
  if (std::exchange(connection.beats_wait, false)) {
    connection.post(PageMessage::beats, connection.beats.bytes());
    connection.beats = RankBits(page_.ranks());
  }
  if (page_.cause_comes()) return !connection.outbox.empty();
  if (page_.has_cause() && !std::exchange(connection.cause_known, true)) {
    std::string cause;
    append(cause, CauseImage{page_.header().rank.load(), page_.header().code.load()});
    connection.post(PageMessage::cause, cause + page_.cause());
  }
  while (news_.has_more(connection.told) && connection.outbox.size() < kRowsInAMessage) {
    std::string rows = news_.since(connection.told, connection.machine);
    if (!rows.empty()) connection.post(PageMessage::rows, rows);
  }
  return !connection.outbox.empty();
}

// Sends what there is and can be sent now. False when the connection is lost.
bool PageLink::send(Connection& connection) const {
  do
    if (!connection.outbox.empty() && !connection.far.socket.write_some(connection.outbox)) return false;
  while (connection.outbox.empty() && fill(connection));
  return true;
}

// False when the connection is lost.
bool PageLink::receive(Connection& connection) try {
  std::string& inbox = connection.inbox;
  for (;;) {
    size_t before = inbox.size(), at = 0;
    bool open = connection.far.socket.read_some(inbox, kReadAtOnce);
    bool all = inbox.size() - before < kReadAtOnce;
    for (uint64_t length = 0; inbox.size() - at >= sizeof(length); at += sizeof(length) + length) {
      std::memcpy(&length, inbox.data() + at, sizeof(length));
      SG_CHECK(length <= longest_message(page_.ranks()), "a message between control pages is too long");
      if (inbox.size() - at < sizeof(length) + length) break;
      understand(connection, inbox.substr(at + sizeof(length), length));
    }
    inbox.erase(0, at);
    if (all || !open) return open;
  }
} catch (const std::exception&) {  // what came was no message of ours
  return false;
}

void PageLink::understand(Connection& connection, const std::string& message) {
  size_t at = 1;
  switch (PageMessage(message.at(0))) {
    case PageMessage::farewell:
      connection.farewell = true;
      break;
    case PageMessage::cause: {
      auto image = take<CauseImage>(message, at, page_.ranks());
      connection.cause_known = true;
      page_.claim_cause(image.rank, image.code, message.substr(at));
      break;
    }
    case PageMessage::beats:
      connection.last_beats = RankBits(page_.ranks(), message.substr(at));
      connection.heard = connection.sign = Clock::now();
      read_beats(connection, connection.last_beats);
      break;
    case PageMessage::rows:
      while (at < message.size())
        news_.heard(take_row(message, at, page_, [&](int rank) { return tells_of(connection, rank); }), Clock::now());
      break;
    default:
      fail("a message between control pages is of no known kind");
  }
}

void PageLink::read_beats(const Connection& connection, const RankBits& beats) const {
  for (int r = 0; r < page_.ranks(); ++r) {
    if (!beats.get(r)) continue;
    SG_CHECK(tells_of(connection, r), "a control page was told of rank ", r, " by who cannot know");
    page_.row(r).beats.fetch_add(1, std::memory_order_relaxed);
  }
}

// The other end is gone: in good order after a farewell, otherwise its machine or process has failed.
void PageLink::lose(Connection& connection) {
  connection.far.socket = Socket();
  if (connection.farewell) return;
  int first = connection.far.first_rank;
  page_.claim_cause(
      first, int(ErrorKind::rank_failed),
      concat("rank ", first, " (pid ", page_.row(first).pid.load(), ") on another machine died: ", kUnknownEnd));
  if (!std::exchange(connection.cause_known, true) && rank_ != 0) page_.header().printed.store(0);  // nobody else can
  for (int r = 0; r < page_.ranks(); ++r) {  // nobody needs to wait for them
    if (tells_of(connection, r) && page_.row(r).state.load() == RankState::running)
      page_.row(r).state.store(RankState::failed);
  }
}

void PageLink::flush() {
  auto deadline = Clock::now() + 1s;
  auto empty_outbox = [&](Connection& connection) {
    while (!connection.outbox.empty() && Clock::now() < deadline) {
      if (!connection.far.socket.write_some(connection.outbox)) return;
      if (!connection.outbox.empty()) wait_writable(connection.far.socket);
    }
  };
  news_.look(Clock::now());
  for (auto& connection : connections_) {
    if (!connection->far.socket) continue;
    do empty_outbox(*connection);
    while (connection->outbox.empty() && fill(*connection));
    connection->post(PageMessage::farewell, "");
    empty_outbox(*connection);
  }
}

}  // namespace shardgrad::dist
