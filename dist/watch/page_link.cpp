#include <shardgrad/dist/watch/page_link.h>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/watch/page_wire.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPeriod = 50ms;

}  // namespace

struct PageLink::Connection {
  explicit Connection(Far far) : far(std::move(far)) {
    rows.resize(this->far.sent_ranks.size());
    lanes.resize(rows.size() * Row::kLanes);
    std::memset(static_cast<void*>(lanes.data()), 0, lanes.size() * sizeof(LaneImage));
  }
  /// Whether the other end may say what this rank does.
  bool tells_of(int rank) const { return std::ranges::count(far.sent_ranks, rank) == 0; }
  Far far;
  std::vector<RowImage> rows;    // as last sent
  std::vector<LaneImage> lanes;  // likewise
  std::string outbox, inbox;
  bool cause_known = false, farewell = false;

  LaneImage& sent_lane(size_t row, int lane) { return lanes[row * Row::kLanes + size_t(lane)]; }
  std::string changes(const ControlPage& page);

  void post(PageMessage kind, const std::string& body) {
    append(outbox, uint64_t(body.size() + 1));
    outbox += char(kind);
    outbox += body;
  }
};

PageLink::PageLink(ControlPage page, const Bootstrap& bootstrap, std::vector<Far> far)
    : page_(std::move(page)), map_(bootstrap.ranks()), rank_(bootstrap.rank()) {
  for (Far& one : far) connections_.push_back(std::make_unique<Connection>(std::move(one)));
  // The cause is said on rank 0's machine.
  if (rank_ != 0) page_.header().printed.store(1);
  thread_ = Thread([this] { loop(); });
}

PageLink::~PageLink() {
  stop_.store(true);
  thread_.join();
}

void PageLink::loop() {
  for (int round = 0; !stop_.load(); ++round) {
    if (round % 10 == 0) publish_tracers();
    std::vector<pollfd> arrivals;
    for (auto& connection : connections_) {
      if (!exchange(*connection)) lose(*connection);
      if (connection->far.socket) arrivals.push_back({connection->far.socket.descriptor(), POLLIN, 0});
    }
    if (poll(arrivals.data(), arrivals.size(), int(kPeriod.count())) > 0) std::this_thread::sleep_for(5ms);
  }
  flush();
}

// False when the connection is lost.
bool PageLink::exchange(Connection& connection) try {
  bool open = send_changes(connection);
  return receive(connection) && open;  // what came before the end is still heard: it may be the farewell
} catch (const std::exception&) {      // what came was no message of ours
  return false;
}

// Ranks elsewhere cannot see whether a process here is under a debugger.
void PageLink::publish_tracers() const {
  for (int r = 0; r < page_.ranks(); ++r)
    if (map_.node_rank(r) == map_.node_rank(rank_) && page_.row(r).state.load() == RankState::running)
      page_.row(r).tracer.store(tracer_of(page_.row(r).pid.load()));
}

// What has changed in the rows since they were last sent.
std::string PageLink::Connection::changes(const ControlPage& page) {
  std::string body;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = page.row(far.sent_ranks[i]);
    RowImage image{row.beats.load(), far.sent_ranks[i], row.pid.load(), row.tracer.load(), 0, {}, 0};
    image.state = row.state.load();  // before the lanes: a rank that has finished makes no further call
    std::vector<std::pair<int32_t, LaneImage>> changed;
    bool whole = true;
    LaneImage now;
    for (int lane = 0; lane < Row::kLanes && whole; ++lane) {
      if (row.lanes[lane].group.load() == 0) continue;
      whole = image_of(row.lanes[lane], now);
      if (!(now == sent_lane(i, lane))) changed.push_back({lane, now});
    }
    if (!whole || (changed.empty() && image == rows[i])) continue;  // torn: the next round has it
    rows[i] = image;
    image.lanes = int32_t(changed.size());
    append(body, image);
    for (auto& [lane, what] : changed) {
      append(body, lane);
      append(body, what);
      std::memcpy(static_cast<void*>(&sent_lane(i, lane)), &what, sizeof(what));
    }
  }
  return body;
}

bool PageLink::send_changes(Connection& connection) {
  if (!connection.far.socket) return true;
  if (connection.outbox.empty()) {
    std::string body = connection.changes(page_);
    if (!body.empty()) connection.post(PageMessage::rows, body);
    if (page_.has_cause() && !std::exchange(connection.cause_known, true)) {
      std::string cause;
      append(cause, CauseImage{page_.header().rank.load(), page_.header().code.load()});
      connection.post(PageMessage::cause, cause + page_.cause());
    }
  }
  return connection.outbox.empty() || connection.far.socket.write_some(connection.outbox);
}

bool PageLink::receive(Connection& connection) {
  if (!connection.far.socket) return true;
  std::string& inbox = connection.inbox;
  bool open = connection.far.socket.read_some(inbox, size_t(1) << 20);
  uint64_t length = 0;
  while (inbox.size() >= sizeof(length)) {
    std::memcpy(&length, inbox.data(), sizeof(length));
    SG_CHECK(length <= longest_message(page_.ranks()), "a message between control pages is too long");
    if (inbox.size() < sizeof(length) + length) break;
    understand(connection, inbox.substr(sizeof(length), length));
    inbox.erase(0, sizeof(length) + length);
  }
  return open;
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
    case PageMessage::rows:
      while (at < message.size()) read_row(connection, message, at);
      break;
    default:
      fail("a message between control pages is of no known kind");
  }
}

void PageLink::read_row(const Connection& connection, const std::string& message, size_t& at) {
  auto image = take<RowImage>(message, at, page_.ranks());
  SG_CHECK(connection.tells_of(image.rank), "a control page was told of rank ", image.rank, " by who cannot know");
  Row& row = page_.row(image.rank);
  for (int i = 0; i < image.lanes; ++i) {
    auto lane = take<int32_t>(message, at, page_.ranks());
    write(row.lanes[lane], take<LaneImage>(message, at, page_.ranks()));
  }
  row.pid.store(image.pid);
  row.tracer.store(image.tracer);
  row.beats.store(image.beats);
  row.state.store(image.state);
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
    if (connection.tells_of(r) && page_.row(r).state.load() == RankState::running)
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
  for (auto& connection : connections_) {
    if (!connection->far.socket) continue;
    empty_outbox(*connection);
    send_changes(*connection);
    connection->post(PageMessage::farewell, "");
    empty_outbox(*connection);
  }
}

}  // namespace shardgrad::dist
