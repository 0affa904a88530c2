// What a stranger or a broken peer may send where a job's ranks meet (dist/bootstrap/reception.h,
// dist/bootstrap/tcp_bootstrap.h) and between their control pages (dist/watch/page_link.h): every message, damaged in
// ways that a fixed seed chooses. Nothing of it may crash, hang, touch what the sender has no say in, or end a meeting
// for the others. Run under ASan and UBSan, too.

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <future>
#include <random>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/reception.h>
#include <shardgrad/dist/bootstrap/tcp_bootstrap.h>
#include <shardgrad/dist/watch/control.h>
#include <tests/dist/pretended_machine.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

const std::string kToken = "a token of the job's own";

/// Damages messages; the same for the same seed.
class Damage {
 public:
  explicit Damage(unsigned seed) : random_(seed) {}
  size_t below(size_t end) { return end == 0 ? 0 : std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

  std::string operator()(std::string bytes) {
    for (size_t n = 1 + below(3); n > 0; --n) once(bytes);
    return bytes;
  }
  std::string noise(size_t length) {
    std::string bytes(length, '\0');
    for (char& c : bytes) c = char(below(256));
    return bytes;
  }

 private:
  void once(std::string& bytes) {
    size_t at = below(bytes.size()), some = 1 + below(40);
    switch (below(9)) {
      case 7:
        write(bytes, small_number(bytes), number());
        break;
      case 8:
        write(bytes, small_number(bytes), uint32_t(number()));
        break;
      case 0:
        if (!bytes.empty()) bytes[at] = char(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        write(bytes, at, number());
        break;
      case 2:
        write(bytes, at / 4 * 4, uint32_t(number()));
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.erase(at, some);
        break;
      case 5:
        bytes.insert(at, noise(some));
        break;
      case 6:
        bytes.insert(at, bytes.substr(at, some));
    }
  }
  template <class T> static void write(std::string& bytes, size_t at, T value) {
    if (at + sizeof(value) <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof(value));
  }
  /// Where the bytes have one that is likely to be a rank, a count or a length.
  size_t small_number(const std::string& bytes) {
    std::vector<size_t> places = {0};
    for (size_t at = 0; at + 4 <= bytes.size(); ++at) {
      uint32_t word;
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      if (word > 0 && word < 255) places.push_back(at);
    }
    return places[below(places.size())];
  }
  uint64_t number() {
    constexpr uint64_t kNumbers[] = {0, 1, 2, 8, 32, 33, 1000, 100000000, 1u << 31, 1ull << 32, 1ull << 62, 1ull << 63};
    uint64_t number = kNumbers[below(std::size(kNumbers))];
    return below(2) ? number : -number;
  }
  std::mt19937 random_;
};

void send_all(const Socket& socket, std::string bytes) {
  while (!bytes.empty() && socket.write_some(bytes))
    if (!bytes.empty()) wait_writable(socket);
}

std::string receive(const Socket& socket, size_t count) {
  std::string bytes;
  while (bytes.size() < count && socket.read_some(bytes, count - bytes.size()))
    if (bytes.size() < count) wait_readable(socket);
  return bytes;
}

Socket accepted(const Socket& listener) {
  std::string reason;
  for (;; wait_readable(listener))
    if (Socket socket = accept_from(listener, reason)) return socket;
}

/// A socket that listens on this machine, and its port.
struct Port {
  std::vector<Socket> sockets = listen_on("127.0.0.1", 0);
  int number = port_of(sockets[0]);
  const Socket& listener() const { return sockets[0]; }
};

/// A host and a guest with somebody between them, who passes on what they say to each other.
struct Overheard {
  std::string challenge, hello, answer;
};
constexpr size_t kChallengeBytes = 32, kHelloBytes = 16 + 16 + 32 + 8 + 232, kAnswerBytes = 36;

Overheard overhear() {
  Port between;
  auto guest = std::async(std::launch::async, [&] {
    std::string reason;
    EXPECT_TRUE(call_host(
        "127.0.0.1", between.number, {1, 2, "machine-1"}, kToken, [] {}, reason))
        << reason;
  });
  Port real;
  int port = real.number;
  Reception host(std::move(real.sockets), kToken, 2, "machine-0");
  std::string reason;
  Socket to_guest = accepted(between.listener()), to_host = connect_to("127.0.0.1", port, 1s, reason);
  Overheard all;
  host.look();
  send_all(to_guest, all.challenge = receive(to_host, kChallengeBytes));
  send_all(to_host, all.hello = receive(to_guest, kHelloBytes));
  while (!host.missing().empty()) host.look();
  send_all(to_guest, all.answer = receive(to_host, kAnswerBytes));
  guest.get();
  return all;
}

TEST(WireFuzz, AHostLetsNobodyInByADamagedHello) {
  Overheard said = overhear();
  Damage damage(1);
  Port port;
  int number = port.number;
  Reception host(std::move(port.sockets), kToken, 3, "machine-0");
  for (int round = 0; round < 30; ++round) {
    std::vector<Socket> strangers(50);
    std::string reason;
    for (Socket& stranger : strangers) {
      stranger = connect_to("127.0.0.1", number, 1s, reason);
      ASSERT_TRUE(stranger) << reason;
      send_all(stranger, damage.below(8) == 0 ? damage.noise(damage.below(600)) : damage(said.hello));
    }
    host.look();
    ASSERT_EQ(host.missing().size(), 2u);
  }
  for (int n : {1, 2}) {
    auto guest = std::async(std::launch::async, [&] {
      std::string reason;
      return bool(call_host(
          "127.0.0.1", number, {n, 3, "b"}, kToken, [] {}, reason));
    });
    while (guest.wait_for(0s) != std::future_status::ready) host.look();
    EXPECT_TRUE(guest.get());
  }
  EXPECT_TRUE(host.missing().empty());
}

TEST(WireFuzz, AHostChecksWhatGuestsSayThatKnowTheToken) {
  Damage damage(2);
  Port port;
  int number = port.number;
  Reception host(std::move(port.sockets), kToken, 3, "machine-0");
  const int numbers[] = {0, -1, 3, 4, -9000, 100000000, INT32_MAX, INT32_MIN};
  auto guest = std::async(std::launch::async, [&] {
    for (int i = 0; i < 200; ++i) {
      std::string reason;
      Guest me{numbers[damage.below(8)], i % 2 ? 3 : numbers[damage.below(8)], damage.noise(damage.below(400))};
      if (me.count == 3 && me.number == 3) me.count = 4;
      EXPECT_THROW(call_host(
                       "127.0.0.1", number, me, kToken, [] {}, reason),
                   Error);
    }
  });
  while (guest.wait_for(0s) != std::future_status::ready) host.look();
  EXPECT_EQ(host.missing().size(), 2u);
}

TEST(WireFuzz, AGuestTakesNobodyForItsHostByADamagedAnswer) {
  Overheard said = overhear();
  Damage damage(3);
  Port port;
  auto host = std::async(std::launch::async, [&] {
    for (int i = 0; i < 600; ++i) {
      Socket guest = accepted(port.listener());
      if (i % 2) {
        send_all(guest, damage(said.challenge));
      } else {
        send_all(guest, said.challenge);
        receive(guest, kHelloBytes);
        send_all(guest, damage(said.answer));
      }
    }
  });
  for (int i = 0; i < 600; ++i) {
    std::string reason;
    try {
      EXPECT_FALSE(call_host(
          "127.0.0.1", port.number, {1, 2, "b"}, kToken, [] {}, reason));
    } catch (const Error& error) {
      std::string said = error.what();
      bool refused = said.find("SHARDGRAD_JOB_TOKEN") != said.npos || said.find("another version") != said.npos;
      EXPECT_TRUE(refused) << said;
    }
  }
  host.get();
}

std::string framed(const std::string& text) {
  uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

// Rank 1 of 3 is let in, and then rank 0 sends what it should not. Never more than 4 GiB are asked for, and memory
// grows with what has come, not with what was announced.
TEST(WireFuzz, ARankChecksWhatRank0Sends) {
  Damage damage(4);
  std::string blobs = "b";
  for (const char* machine : {"a", "b", "c"}) blobs += std::string("\1\0\0\0", 4) + framed(machine);
  for (int i = 0; i < 400; ++i) {
    Port port;
    int number = port.number;
    Reception host(std::move(port.sockets), kToken, 2, "a");
    auto rank = std::async(std::launch::async, [number] {
      try {
        auto bootstrap = make_tcp_bootstrap({1, 2, "127.0.0.1", number, kToken, 20s});
        EXPECT_EQ(bootstrap->ranks().world_size(), 2);
        bootstrap->exchange("more");
      } catch (const Error&) {
      }
    });
    while (!host.missing().empty()) host.look();
    std::string message = i % 5 == 0 ? framed(damage.noise(damage.below(50))) : framed(damage(blobs));
    send_all(host.guests()[1], i % 3 == 0 ? damage(message) : message);
    host.guests().clear();
    ASSERT_EQ(rank.wait_for(10s), std::future_status::ready);
  }
}

TEST(WireFuzz, Rank0ChecksWhatARankSends) {
  Damage damage(5);
  int met = 0;
  for (int i = 0; i < 200; ++i) {
    Port free;
    int number = free.number;
    free.sockets.clear();
    auto rank_0 = std::async(std::launch::async, [number] {
      try {
        auto bootstrap = make_tcp_bootstrap({0, 2, "127.0.0.1", number, kToken, 20s});
        for (int k = 0; k < 3; ++k) EXPECT_EQ(bootstrap->exchange("mine").size(), 2u);
      } catch (const Error&) {
      }
    });
    std::string reason;
    Socket rank_1;
    while (!rank_1 && rank_0.wait_for(1ms) != std::future_status::ready)
      rank_1 = call_host(
          "127.0.0.1", number, {1, 2, "b"}, kToken, [] {}, reason);
    if (!rank_1) continue;  // another process has taken the port meanwhile
    ++met;
    send_all(rank_1, damage(framed("one") + framed("two") + framed("")));
    rank_1 = Socket();
    ASSERT_EQ(rank_0.wait_for(10s), std::future_status::ready);
  }
  EXPECT_GT(met, 100);
}

constexpr int kCallers = 40, kRanks = 11;

/// Rank 0's machine, that of ranks 1 and 2, and one more.
std::vector<std::string> three_machines() {
  std::vector<std::string> hosts(kRanks, "silent");
  hosts[0] = "near";
  hosts[1] = hosts[2] = "far";
  return hosts;
}

/// What the machine of ranks 1 and 2 sends in its life: rows with lanes in use, that stand and that go on, heartbeats,
/// a cause, farewell.
std::string life_of_a_machine() {
  ControlPage page = make_private_page(kRanks);
  auto [mine, theirs] = connected();
  {
    Context context;
    Control controls[2] = {{page, 1}, {page, 2}};
    for (int r : {1, 2}) page.row(r).beats.store(uint64_t(r));
    PageLink link(page, PretendedRank(1, three_machines()), far_end(std::move(mine), 0));
    for (Control& control : controls)
      for (uint64_t group : {7, 8, 9}) {
        int lane = control.open_lane(group, {0, 1, 2});
        Place place;
        place.group = group;
        place.sequence = 3;
        place.has_elements = true;
        std::strcpy(place.op, "all_reduce");
        std::strcpy(place.unit, "layers.0");
        control.call(lane, 3);
        control.enter(lane, place);
      }
    std::this_thread::sleep_for(500ms);
    page.claim_cause(1, 4, "label 11 of sample 5");
    std::this_thread::sleep_for(120ms);
  }
  std::string bytes;
  while (theirs.read_some(bytes, 1 << 20)) wait_readable(theirs);
  return bytes;
}

std::set<char> kinds_in(const std::string& life) {
  std::set<char> kinds;
  uint64_t length = 0;
  for (size_t at = 0; at + sizeof(length) < life.size(); at += sizeof(length) + length) {
    std::memcpy(&length, life.data() + at, sizeof(length));
    kinds.insert(life[at + sizeof(length)]);
  }
  return kinds;
}

/// Reads all of a page as a monitor would.
size_t read_all(const ControlPage& page, const Control& control) {
  size_t bytes = page.cause().size();
  for (int r = 0; r < page.ranks(); ++r)
    bytes += control.whereabouts_of(r).size() + control.whereabouts_of(r, 7).size();
  return bytes;
}

std::string bytes_of(const Row& row) { return {reinterpret_cast<const char*>(&row), sizeof(row)}; }

TEST(WireFuzz, AControlPageTakesInOnlyWhatCanBe) {
  std::string life = life_of_a_machine();
  ASSERT_GT(life.size(), 600u);
  ASSERT_EQ(kinds_in(life), (std::set<char>{'b', 'c', 'f', 'r'})) << "every kind of message is damaged";
  Damage damage(6);
  Context context;
  for (int round = 0; round < 25; ++round) {
    ControlPage page = make_private_page(kRanks);
    Control control(page, 0);
    const std::string mine = bytes_of(page.row(0)), untouched = bytes_of(page.row(kRanks - 1));
    std::vector<PageLink::Far> far;
    std::vector<Socket> peers;
    for (int n = 0; n < kCallers; ++n) {
      auto [near, away] = connected();
      far.push_back({std::move(near), 1});
      send_all(away, damage(life));
      peers.push_back(std::move(away));
    }
    {
      PageLink link(page, PretendedRank(0, three_machines()), std::move(far));
      peers.clear();  // what was sent is still read
      for (int i = 0; i < 500 && !page.has_cause(); ++i) std::this_thread::sleep_for(1ms);
    }
    EXPECT_GT(read_all(page, control), 0u);
    for (int lane = 0; lane < Row::kLanes; ++lane) find_deadlock(page, 1, lane);
    EXPECT_TRUE(bytes_of(page.row(0)) == mine) << "only rank 0 writes this";
    for (int r = 3; r < kRanks; ++r) EXPECT_TRUE(bytes_of(page.row(r)) == untouched) << "nobody may tell of rank " << r;
    int code = page.header().code.load();
    EXPECT_TRUE(code > 0 && code < 256) << code;
  }
}

}  // namespace
}  // namespace shardgrad::dist::testing
