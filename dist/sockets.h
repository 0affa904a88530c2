#pragma once
// TCP between the machines of a job: few connections, small messages, no wait that cannot be ended.

#include <chrono>
#include <functional>
#include <string>

namespace shardgrad::dist {

/// Called again and again while waiting; throws when waiting has become pointless.
using Check = std::function<void()>;

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

/// Listens on every address of this machine; port 0 is any free one. Throws Error(input), with the reason, when it
/// cannot.
Socket listen_on(int port);
int port_of(const Socket& listener);
/// The next connection that has come; empty when none has.
Socket accept_from(const Socket& listener);
/// One attempt to connect. Empty, with the reason, when nobody answers within `limit`.
Socket connect_to(const std::string& host, int port, std::chrono::milliseconds limit, std::string& reason);

/// A message with its length. False when the other side has closed the connection.
bool send_frame(const Socket& socket, const std::string& text, const Check& check);
bool receive_frame(const Socket& socket, std::string& text, const Check& check);

/// Waits until something has arrived, or can be sent, at most 50 ms.
void wait_readable(const Socket& socket);
void wait_writable(const Socket& socket);

}  // namespace shardgrad::dist
