#include <shardgrad/dist/bootstrap/host.h>

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/peer.h>

namespace shardgrad::dist {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A host's answer is a sentence.
constexpr size_t kLongestAnswer = 4096;
constexpr size_t kTurnedAwaySaid = 8;
constexpr const char* kOtherVersion = "is of another version of this library";
/// What strangers may take of a host: connections at a look, and callers that have not said who they are.
constexpr int kCallersAtALook = 64;
constexpr size_t kStrangers = 200;

/// Raised with every change of what is said here, in dist/bootstrap/tcp_bootstrap.cpp and in dist/watch/page_wire.h.
constexpr char kMagic[16] = "shardgrad-tcp-4";
constexpr size_t kMagicName = sizeof(kMagic) - 2;  // without the number

struct Challenge {
  std::array<char, 16> magic = std::to_array(kMagic);
  Nonce nonce{};
};

struct Hello {
  std::array<char, 16> magic = std::to_array(kMagic);
  Nonce nonce{};
  Digest proof{};
  int32_t number = 0, count = 0;
  int64_t group = 0;
  char machine[kLongestMachine + 1] = {};
};

struct Answer {
  Digest proof{};
  uint32_t bytes = 0;  // of text that follows
};

template <class T> std::string bytes_of(const T& message) {
  return {reinterpret_cast<const char*>(&message), sizeof(message)};
}
template <class T> T message_of(const std::string& bytes) {
  T message;
  std::memcpy(static_cast<void*>(&message), bytes.data(), sizeof(message));
  return message;
}

// The proof of what one side says: nothing of it can be used in another conversation, or be given back to who said it.
Digest prove(const std::string& token, const char* side, const Nonce& host, const Nonce& guest,
             const std::string& what) {
  return hmac_sha256(token, concat(side, ' ', bytes_of(host), bytes_of(guest), what));
}

// Without its proof.
std::string said_by(const Hello& hello) { return bytes_of(hello).substr(offsetof(Hello, number)); }

// What another version of this library calls itself that `bytes` begin with; empty for anything else.
std::string other_version(const std::string& bytes) {
  std::string magic = bytes.substr(0, sizeof(kMagic)), name = magic.c_str();
  bool of_a_version = name.starts_with(std::string_view(kMagic, kMagicName)) && name.size() > kMagicName &&
                      name.find_first_not_of("0123456789", kMagicName) == name.npos;
  return magic.size() == sizeof(kMagic) && of_a_version && name != kMagic ? name : "";
}

size_t descriptors_in_use() {
  std::error_code none;
  std::filesystem::directory_iterator all("/proc/self/fd", none);
  return none ? 0 : size_t(std::distance(all, std::filesystem::directory_iterator()));
}

}  // namespace

std::string printable(const char* text, size_t room) {
  std::string result(text, strnlen(text, room));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return result;
}

bool is_open(const Socket& socket) {
  char one;
  ssize_t got = recv(socket.descriptor(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

// A connection for each guest, and some for strangers, where the usual limit is 1,024 and the hard one much higher.
void allow_descriptors(size_t more, const std::string& what) {
  constexpr size_t kOwn = 16, kPlenty = 1 << 16;  // groups that are made later have connections of their own
  size_t needed = descriptors_in_use() + more + kOwn, wanted = needed + 3 * more + kStrangers;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= std::max(wanted, kPlenty)) return;
  if (limit.rlim_max < needed)
    fail_as(ErrorKind::missing, what, ", and needs ", needed, " descriptors; this process may have ", limit.rlim_max,
            " (its hard limit, ulimit -Hn). Raise it (LimitNOFILE of a service, limits.conf, docker run --ulimit ",
            "nofile=", wanted, "), or start the ranks by mpirun, which has rank 0 hold one connection to each machine");
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max(wanted, kPlenty));
  setrlimit(RLIMIT_NOFILE, &limit);
}

Host::Host(std::vector<Socket> listeners, std::string token, int number, std::string secret)
    : listeners_(std::move(listeners)), token_(std::move(token)), secret_(std::move(secret)), number_(number) {}

void Host::look(std::chrono::milliseconds patience) {
  std::string full;
  for (const Socket& listener : listeners_)
    for (int n = 0; n < kCallersAtALook; ++n) {
      Socket socket = accept_from(listener, full);
      if (!socket) break;
      take_in(std::move(socket));
    }
  if (!full.empty()) no_room_ = full;
  lacks_ = full;
  // A silent one is not asked, for they may be many; once more before it is forgotten, if it spoke when nobody looked.
  std::erase_if(callers_, [this, now = Clock::now()](Caller& caller) {
    return (caller.speaks || now - caller.since >= kPatience) && !hear(caller);
  });
  size_t room = expected() + kStrangers;  // the oldest have had the longest to speak
  if (callers_.size() > room) callers_.erase(callers_.begin(), callers_.end() - ptrdiff_t(room));
  if (expected() == 0) return;
  std::vector<const Socket*> all;
  for (const Caller& caller : callers_) all.push_back(&caller.socket);
  for (const Socket& listener : listeners_)
    if (full.empty()) all.push_back(&listener);
  std::vector<bool> arrived = wait_readable(all, patience);
  for (size_t i = 0; i < callers_.size(); ++i) callers_[i].speaks = arrived[i];
}

void Host::take_in(Socket socket) {
  Challenge challenge;
  challenge.nonce = make_nonce();
  std::string bytes = bytes_of(challenge);
  if (socket.write_some(bytes)) callers_.push_back({std::move(socket), challenge.nonce, "", Clock::now()});
}

// False when it is done with: it has said who it is, has gone, says nothing, or is no rank at all.
bool Host::hear(Caller& caller) {
  std::string& bytes = caller.bytes;
  if (!caller.socket.read_some(bytes, sizeof(Hello) - bytes.size())) return false;
  if (std::string other = other_version(bytes); !other.empty())
    turn_away(address_of_peer(caller.socket), concat("it ", kOtherVersion, " (", other, ", not ", kMagic, ")"));
  size_t named = bytes.size() < sizeof(kMagic) ? std::min(bytes.size(), kMagicName) : sizeof(kMagic);
  if (std::memcmp(bytes.data(), kMagic, named) != 0) return false;
  if (bytes.size() < sizeof(Hello)) return Clock::now() - caller.since < kPatience;
  if (is_open(caller.socket)) judge(caller);
  return false;
}

void Host::judge(Caller& caller) {
  auto hello = message_of<Hello>(caller.bytes);
  Guest guest{hello.number, hello.count, printable(hello.machine, sizeof(hello.machine)), hello.group};
  std::string from = address_of_peer(caller.socket), why;
  bool proved = same(hello.proof, prove(token_, "guest", caller.nonce, hello.nonce, said_by(hello)));
  if (!proved)
    why = "it was not given " + secret_;
  else if (token_.empty())
    why = other_user(caller.socket);
  if (why.empty()) {
    from += " on " + guest.machine;
    why = contradiction(guest);
  }
  std::string text = why.empty() ? "" : concat("rank ", number_, " turns away ", from, ": ", why);
  // Strangers get no proof, which they could try tokens on elsewhere.
  Answer answer{proved ? prove(token_, "host", caller.nonce, hello.nonce, text) : Digest{}, uint32_t(text.size())};
  std::string bytes = bytes_of(answer) + text;
  bool heard = caller.socket.write_some(bytes) && bytes.empty();
  if (!why.empty()) return turn_away(from, why);
  if (heard) welcome(guest, std::move(caller.socket));
}

// Said at once, for its own process may be where nobody looks.
void Host::turn_away(const std::string& whom, const std::string& why) {
  bool known = std::ranges::any_of(turned_away_, [&](const std::string& other) { return other.ends_with(": " + why); });
  if (known || turned_away_.size() == kTurnedAwaySaid) return;
  turned_away_.push_back(concat(whom, ": ", why));
  std::fprintf(stderr, "shardgrad: rank %d turns away %s\n", number_, turned_away_.back().c_str());
}

std::string Host::turned_away() const {
  std::string text;
  for (const std::string& one : turned_away_) text += (text.empty() ? "; turned away: " : "; ") + one;
  if (!no_room_.empty()) text += "; connections could not be taken: " + no_room_ + " (raise ulimit -n)";
  return text;
}

// False when so many bytes do not come in time.
static bool read_in_time(const Socket& socket, std::string& bytes, size_t count, Clock::time_point deadline,
                         const Check& check) {
  while (bytes.size() < count) {
    if (Clock::now() > deadline || !socket.read_some(bytes, count - bytes.size())) return false;
    check();
    if (bytes.size() < count) wait_readable(socket);
  }
  return true;
}

Socket call_host(const std::string& host, int port, const Guest& me, const std::string& token, const Check& check,
                 std::string& reason) {
  Socket socket = connect_to(host, port, 3s, reason);
  return socket
             ? introduce(std::move(socket), concat("rank 0 at ", host, ":", port), me, token, check, reason, kPatience)
             : Socket();
}

Socket introduce(Socket socket, const std::string& host, const Guest& me, const std::string& token, const Check& check,
                 std::string& reason, std::chrono::seconds patience) {
  reason = "what listens there does not speak as rank 0 of a job does";
  std::string bytes, text;
  auto read = [&](std::string& into, size_t count) {
    return read_in_time(socket, into, count, Clock::now() + patience, check);
  };
  if (!read(bytes, sizeof(Challenge))) return {};
  auto challenge = message_of<Challenge>(bytes);
  if (std::string other = other_version(bytes); !other.empty()) {
    std::string mine(kMagic, sizeof(kMagic));
    socket.write_some(mine);  // rank 0 says so, too
    fail(host, " ", kOtherVersion, " (", other, ", not ", kMagic, "); give every process of the job the same");
  }
  if (challenge.magic != Challenge().magic) return {};
  if (std::string other = token.empty() ? other_user(socket) : ""; !other.empty()) {
    reason = "of the process that listens there: " + other;
    return {};
  }
  Hello hello;
  hello.nonce = make_nonce();
  hello.number = me.number;
  hello.count = me.count;
  hello.group = me.group;
  me.machine.copy(hello.machine, kLongestMachine);
  hello.proof = prove(token, "guest", challenge.nonce, hello.nonce, said_by(hello));
  bytes = bytes_of(hello);
  if (!socket.write_some(bytes) || !bytes.empty()) return {};
  if (!read(bytes, sizeof(Answer))) return {};
  auto answer = message_of<Answer>(bytes);
  if (answer.bytes > kLongestAnswer || !read(text, answer.bytes)) return {};
  SG_CHECK(same(answer.proof, prove(token, "host", challenge.nonce, hello.nonce, text)), host,
           " was not given this process's SHARDGRAD_JOB_TOKEN; give every process of the job the same, or none");
  SG_CHECK(text.empty(), text);
  return socket;
}

}  // namespace shardgrad::dist
