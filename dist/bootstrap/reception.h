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

/// Who a caller says it is: number `number` of `count`, on a machine.
struct Guest {
  int number = 0, count = 0;
  std::string machine;
};

/// The host's side: callers come in any order, and strangers among them. Who is not let in is told why, and forgotten;
/// nobody ends the meeting for the others.
class Reception {
 public:
  /// Expects guests 1 to count - 1; the host itself is 0. Raises this process's limit on descriptors if it must. Throws
  /// Error(missing), with the remedy, where its hard limit has no room for them.
  Reception(std::vector<Socket> listeners, std::string token, int count, const std::string& machine);

  /// Takes in who has come, hears what they say, and waits a moment for more, at most 50 ms.
  void look();
  std::vector<int> missing() const;
  /// Who was not let in and why, for a sentence: "; turned away: 10.0.0.9:41512 on node9: …"; or empty.
  std::string turned_away() const;
  /// The machines, by number.
  const std::vector<std::string>& machines() const { return machines_; }
  /// The connections, by number; the first is empty.
  std::vector<Socket>& guests() { return guests_; }

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
  std::string contradiction(int number, int count, const std::string& machine) const;
  void turn_away(const std::string& whom, const std::string& why);

  std::vector<Socket> listeners_;
  const std::string token_;
  std::vector<Caller> callers_;
  std::vector<Socket> guests_;
  std::vector<std::string> machines_;
  std::vector<std::string> turned_away_;
  std::string no_room_;  // why a connection could not be taken
};

/// The guest's side, one attempt. Empty, with the reason, when nobody answers as a host does, which may change. Throws
/// Error when the host does not let this guest in.
Socket call_host(const std::string& host, int port, const Guest& me, const std::string& token, const Check& check,
                 std::string& reason);

}  // namespace shardgrad::dist
