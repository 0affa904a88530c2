#pragma once
// How processes meet one that listens for them, where anybody may connect to its port. The host lets in only those who
// prove that they know the job's token, and each guest sees likewise that it has found its own host. The token itself
// is never sent:
//
//     host   random bytes h                                              Challenge
//     guest  random bytes g, who it is, HMAC(token, "guest" h g who)     Hello
//     host   HMAC(token, "host" h g text), text: why not, if so         Answer
//            (no HMAC for who has not proved that it knows the token)
//
// What is said afterwards is neither signed nor encrypted: the token keeps strangers from joining, not a network that
// can be read or changed from being so. With an empty token everybody proves it; then, within a machine, only
// processes of one user may meet (dist/os/peer.h).

#include <chrono>
#include <string>
#include <vector>

#include <shardgrad/dist/os/secret.h>
#include <shardgrad/dist/os/sockets.h>

namespace shardgrad::dist {

/// Who a caller says it is: number `number` of `count`, on a machine; and the group that it comes for, 0 being the job.
struct Guest {
  int number = 0, count = 0;
  std::string machine;
  int64_t group = 0;
};

/// The host's side: callers come in any order, and strangers among them. Who is not let in is told why, and forgotten;
/// nobody ends the meeting for the others.
class Host {
 public:
  /// For sentences: `number` of the host itself, and where the token is from.
  Host(std::vector<Socket> listeners, std::string token, int number,
       std::string secret = "rank 0's SHARDGRAD_JOB_TOKEN");
  virtual ~Host() = default;
  Host(const Host&) = delete;

  /// Takes in who has come, hears what they say, and waits a moment for more, at most so long.
  void look(std::chrono::milliseconds patience = std::chrono::milliseconds(50));
  /// Who was not let in and why, for a sentence: "; turned away: 10.0.0.9:41512 on node9: …"; or empty.
  std::string turned_away() const;
  /// Why the last look could not take all connections; empty when it could.
  const std::string& lacks() const { return lacks_; }

 protected:
  /// How many more may come.
  virtual size_t expected() const = 0;
  /// Why a guest that knows the token may not come in; empty when it may.
  virtual std::string contradiction(const Guest& guest) const = 0;
  virtual void welcome(const Guest& guest, Socket socket) = 0;

 private:
  struct Caller {
    Socket socket;
    Nonce nonce;
    std::string bytes;
    std::chrono::steady_clock::time_point since;
    bool speaks = true;  ///< something may have come from it
  };
  void take_in(Socket socket);
  bool hear(Caller& caller);
  void judge(Caller& caller);
  void turn_away(const std::string& whom, const std::string& why);

  std::vector<Socket> listeners_;
  const std::string token_, secret_;
  const int number_;
  std::vector<Caller> callers_;
  std::vector<std::string> turned_away_;
  std::string lacks_, no_room_;  // why a connection could not be taken, at the last look and at all
};

/// How much of a machine's name a guest says.
inline constexpr size_t kLongestMachine = 223;
/// What a caller may take to say who it is, and a host to answer.
inline constexpr std::chrono::seconds kPatience{5};

/// The guest's side, one attempt. Empty, with the reason, when nobody answers as a host does, which may change. Throws
/// Error when the host does not let this guest in.
Socket call_host(const std::string& host, int port, const Guest& me, const std::string& token, const Check& check,
                 std::string& reason);
/// The same over a connection to `host`, as sentences call it, which may be silent for so long.
Socket introduce(Socket socket, const std::string& host, const Guest& me, const std::string& token, const Check& check,
                 std::string& reason, std::chrono::seconds patience);

/// What comes from outside may end up on a terminal: its characters that are safe there, of at most `room` bytes.
std::string printable(const char* text, size_t room);
/// Whether the other side has not closed the connection.
bool is_open(const Socket& socket);
/// Raises this process's limit on descriptors to what `more` of them need. Throws Error(missing), with the remedy,
/// where its hard limit has no room for them: `what` needs them.
void allow_descriptors(size_t more, const std::string& what);

}  // namespace shardgrad::dist
