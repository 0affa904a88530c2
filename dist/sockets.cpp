#include <shardgrad/dist/sockets.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {

constexpr int kKind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}
Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool Socket::read_some(std::string& bytes, size_t most) const {
  size_t before = bytes.size();
  bytes.resize(before + most);
  ssize_t got = recv(descriptor_, bytes.data() + before, most, 0);
  bool nothing_yet = got < 0 && (errno == EAGAIN || errno == EINTR);
  bytes.resize(before + size_t(std::max<ssize_t>(got, 0)));
  return got > 0 || nothing_yet;
}

bool Socket::write_some(std::string& bytes) const {
  ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  bytes.erase(0, size_t(sent));
  return true;
}

static void set_option(int descriptor, int level, int option) {
  int on = 1;
  setsockopt(descriptor, level, option, &on, sizeof(on));
}

// Both kinds of address through one socket where the machine has IPv6.
Socket listen_on(int port) {
  Socket socket(::socket(AF_INET6, kKind, 0));
  sockaddr_storage address{};
  socklen_t length;
  if (socket) {
    int off = 0;
    setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    auto* any = reinterpret_cast<sockaddr_in6*>(&address);
    any->sin6_family = AF_INET6;
    any->sin6_port = htons(uint16_t(port));
    length = sizeof(*any);
  } else {
    socket = Socket(::socket(AF_INET, kKind, 0));
    auto* any = reinterpret_cast<sockaddr_in*>(&address);
    any->sin_family = AF_INET;
    any->sin_port = htons(uint16_t(port));
    length = sizeof(*any);
  }
  set_option(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR);
  bool listens = socket && bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                 listen(socket.descriptor(), 128) == 0;
  SG_CHECK(listens, "cannot listen on port ", port, " of this machine: ", std::strerror(errno),
           "; choose a free port, the same on every rank");
  return socket;
}

int port_of(const Socket& listener) {
  sockaddr_in6 address{};  // the port stands at the same place in both kinds
  socklen_t length = sizeof(address);
  getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin6_port);
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) set_option(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

static bool connect_within(const Socket& socket, const addrinfo& address, std::chrono::milliseconds limit) {
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd ready{socket.descriptor(), POLLOUT, 0};
  int error = ETIMEDOUT;
  socklen_t length = sizeof(error);
  if (poll(&ready, 1, int(limit.count())) > 0) getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

Socket connect_to(const std::string& host, int port, std::chrono::milliseconds limit, std::string& reason) {
  addrinfo wish{}, *found = nullptr;
  wish.ai_socktype = SOCK_STREAM;
  if (int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wish, &found)) {
    reason = gai_strerror(error);
    return {};
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* address = found; address; address = address->ai_next) {
    Socket socket(::socket(address->ai_family, kKind, 0));
    if (socket && connect_within(socket, *address, limit)) {
      set_option(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY);
      return socket;
    }
    reason = std::strerror(errno);
  }
  return {};
}

static void wait_for(const Socket& socket, short what) {
  pollfd ready{socket.descriptor(), what, 0};
  poll(&ready, 1, 50);
}
void wait_readable(const Socket& socket) { wait_for(socket, POLLIN); }
void wait_writable(const Socket& socket) { wait_for(socket, POLLOUT); }

bool send_frame(const Socket& socket, const std::string& text, const Check& check) {
  uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += text;
  while (socket.write_some(bytes)) {
    if (bytes.empty()) return true;
    check();
    wait_writable(socket);
  }
  return false;
}

bool receive_frame(const Socket& socket, std::string& text, const Check& check) {
  uint64_t length = 0;
  std::string head;
  auto receive = [&](std::string& bytes, size_t count) {
    while (bytes.size() < count) {
      if (!socket.read_some(bytes, std::min(count - bytes.size(), size_t(1) << 20))) return false;
      check();
      if (bytes.size() < count) wait_readable(socket);
    }
    return true;
  };
  text.clear();
  if (!receive(head, sizeof(length))) return false;
  std::memcpy(&length, head.data(), sizeof(length));
  SG_CHECK(length < uint64_t(1) << 32, "a message of ", length, " bytes came from another machine of the job: it does ",
           "not speak the same protocol");
  return receive(text, length);
}

}  // namespace shardgrad::dist
