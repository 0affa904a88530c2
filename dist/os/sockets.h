#pragma once
// TCP between the machines of a job: few connections, small messages, no wait that cannot be ended.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace shardgrad::dist {

/// Called again and again while waiting; throws when waiting has become pointless.
using Check = std::function<void()>;

/// Throws Error(rank_failed) after the deadline.
Check until(std::chrono::steady_clock::time_point deadline);

/// A connection or a listening socket, closed with its owner. Never blocks, and children do not inherit it.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

  /// Appends the bytes that have arrived, at most `most` of them. False when the other side has closed the connection.
  bool read_some(std::string& bytes, size_t most) const;
  /// Sends what can be sent now and removes it from `bytes`. False when the other side has closed the connection.
  bool write_some(std::string& bytes) const;

 private:
  int descriptor_ = -1;
};

/// Listens on the addresses that `host` has on this machine, all on one port; port 0 is any free one. Listens on every
/// address where `host` is empty, belongs to no address of this machine, or is this machine's own name and stands for a
/// loopback address here: then others know it by another. Throws Error(input), with the reason, when it cannot.
std::vector<Socket> listen_on(const std::string& host, int port);
int port_of(const Socket& listener);
/// The next connection that has come; empty when none has. The reason is set when one could not be taken.
Socket accept_from(const Socket& listener, std::string& reason);
/// One attempt to connect. Empty, with the reason, when nobody answers within `limit`. Throws Error(missing), with the
/// remedy, where this process has no descriptor left.
Socket connect_to(
    const std::string& host, int port, std::chrono::milliseconds limit, std::string& reason,
    const Check& check = [] {});

/// Has what goes through a TCP connection leave this machine before other data that wait (IPTOS_LOWDELAY: the queues of
/// Linux heed it, and routers may).
void put_first(const Socket& socket);

/// A message with its length. False when the other side has closed the connection.
bool send_frame(const Socket& socket, const std::string& text, const Check& check);
bool receive_frame(const Socket& socket, std::string& text, const Check& check);

/// Waits until something has arrived, at most 200 ms (thousands may wait on a machine), or can be sent, at most 50 ms.
void wait_readable(const Socket& socket);
void wait_writable(const Socket& socket);
/// Likewise, at most so long, for any of them. Says for each whether something has arrived.
std::vector<bool> wait_readable(const std::vector<const Socket*>& sockets, std::chrono::milliseconds limit);

}  // namespace shardgrad::dist
