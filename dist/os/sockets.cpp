#include <shardgrad/dist/os/sockets.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
  char piece[16 << 10];
  for (size_t left = most; left > 0;) {
    ssize_t got = recv(descriptor_, piece, std::min(left, sizeof(piece)), 0);
    if (got <= 0) return left < most || (got < 0 && (errno == EAGAIN || errno == EINTR));
    bytes.append(piece, size_t(got));
    left -= size_t(got);
  }
  return true;
}

bool Socket::write_some(std::string& bytes) const {
  ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  bytes.erase(0, size_t(sent));
  return true;
}

static void set_option(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof(value));
}

void put_first(const Socket& socket) {
  set_option(socket.descriptor(), IPPROTO_IP, IP_TOS, IPTOS_LOWDELAY);
  set_option(socket.descriptor(), IPPROTO_IPV6, IPV6_TCLASS, IPTOS_LOWDELAY);
  set_option(socket.descriptor(), SOL_SOCKET, SO_PRIORITY, 6);  // which packets of IPv6 do not get from that
}

// What goes at once, over connections that routers between machines do not forget when nothing goes for an hour.
static void prepare(const Socket& socket) {
  set_option(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket.descriptor(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket.descriptor(), IPPROTO_TCP, TCP_KEEPIDLE, 60);
}

namespace {

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
  int family() const { return bytes.ss_family; }
  bool operator==(const Address& other) const {
    return length == other.length && std::memcmp(&bytes, &other.bytes, length) == 0;
  }
  bool is_loopback() const {
    if (family() == AF_INET)
      return ntohl(reinterpret_cast<const sockaddr_in&>(bytes).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(bytes).sin6_addr);
  }
};

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Empty, with the reason, when nobody knows the name.
AddressList look_up(const std::string& host, int port, std::string& reason) {
  addrinfo wish{}, *found = nullptr;
  wish.ai_socktype = SOCK_STREAM;
  if (int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wish, &found)) {
    reason = gai_strerror(error);
    found = nullptr;
  }
  return {found, freeaddrinfo};
}

/// A listening socket, or empty with errno. The address of all zeroes is every address; of IPv6, that of IPv4 too.
Socket listen_at(const Address& address) {
  Socket socket(::socket(address.family(), kKind, 0));
  if (!socket) return socket;
  set_option(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
  set_option(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  bool listens = bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&address.bytes), address.length) == 0 &&
                 listen(socket.descriptor(), 1024) == 0;
  int error = errno;
  if (!listens) socket = Socket();
  errno = error;
  return socket;
}

std::vector<Address> every_address() {
  std::vector<Address> both(2);
  both[0].bytes.ss_family = AF_INET6;
  both[0].length = sizeof(sockaddr_in6);
  both[1].bytes.ss_family = AF_INET;
  both[1].length = sizeof(sockaddr_in);
  return both;
}

void set_port(Address& address, int port) {  // it stands at the same place in both kinds
  reinterpret_cast<sockaddr_in&>(address.bytes).sin_port = htons(uint16_t(port));
}

// What a name says about this machine may be of no use to others: Debian's /etc/hosts has a machine's own name at
// 127.0.1.1, a service's address belongs to no machine, and a name may not be known yet.
std::vector<Address> addresses_of(const std::string& host) {
  std::vector<Address> addresses;
  std::string reason;
  AddressList found = look_up(host, 0, reason);
  bool local = true;
  for (const addrinfo* one = found.get(); one; one = one->ai_next) {
    Address address;
    std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    local &= address.is_loopback();
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  }
  in6_addr unused;
  bool literal = inet_pton(AF_INET, host.c_str(), &unused) == 1 || inet_pton(AF_INET6, host.c_str(), &unused) == 1;
  if (local && !literal && host.find("localhost") == host.npos) addresses.clear();
  return addresses;
}

// Listens at those of the addresses that are this machine's, all on one port. 0, or the reason as errno has it.
int listen_at_all(std::vector<Address> addresses, int port, std::vector<Socket>& listeners) {
  constexpr int kPortsTried = 100;
  for (int tried = 1;; ++tried) {
    int error = 0;
    for (Address& address : addresses) {
      set_port(address, listeners.empty() ? port : port_of(listeners[0]));
      if (Socket socket = listen_at(address))
        listeners.push_back(std::move(socket));
      else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT && error == 0)
        error = errno;
    }
    if (error == 0) return listeners.empty() ? EADDRNOTAVAIL : 0;
    bool of_the_first = port == 0 && error == EADDRINUSE && !listeners.empty();  // a port that another address has not
    listeners.clear();
    if (!of_the_first || tried == kPortsTried) return error;
  }
}

}  // namespace

std::vector<Socket> listen_on(const std::string& host, int port) {
  std::vector<Socket> listeners;
  int error = EADDRNOTAVAIL;
  if (!host.empty()) error = listen_at_all(addresses_of(host), port, listeners);
  for (const Address& every : every_address())
    if (error == EADDRNOTAVAIL) error = listen_at_all({every}, port, listeners);
  SG_CHECK(error == 0, "cannot listen on port ", port, " of this machine: ", std::strerror(error),
           "; choose a free port, the same on every rank");
  return listeners;
}

int port_of(const Socket& listener) {
  sockaddr_in6 address{};  // the port stands at the same place in both kinds
  socklen_t length = sizeof(address);
  getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin6_port);
}

Socket accept_from(const Socket& listener, std::string& reason) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
    reason = std::strerror(errno);
  if (socket) prepare(socket);
  return socket;
}

static bool connect_within(const Socket& socket, const addrinfo& address, std::chrono::milliseconds limit,
                           const Check& check) {
  using Clock = std::chrono::steady_clock;
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd ready{socket.descriptor(), POLLOUT, 0};
  int error = ETIMEDOUT;
  socklen_t length = sizeof(error);
  for (auto deadline = Clock::now() + limit; Clock::now() < deadline && poll(&ready, 1, 50) <= 0;) check();
  if (ready.revents != 0) getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

// Where nobody listens, a connection may get the very port it asks for as its own, and TCP lets it answer itself.
static bool is_its_own_peer(const Socket& socket) {
  Address mine, theirs;
  mine.length = theirs.length = sizeof(mine.bytes);
  getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&mine.bytes), &mine.length);
  return getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&theirs.bytes), &theirs.length) == 0 &&
         mine == theirs;
}

Socket connect_to(const std::string& host, int port, std::chrono::milliseconds limit, std::string& reason,
                  const Check& check) {
  AddressList addresses = look_up(host, port, reason);
  for (const addrinfo* address = addresses.get(); address; address = address->ai_next) {
    Socket socket(::socket(address->ai_family, kKind, 0));
    if (!socket && (errno == EMFILE || errno == ENFILE))
      fail_as(ErrorKind::missing, "no connection to ", host, ':', port, ": ", std::strerror(errno),
              "; raise this process's limit of descriptors (ulimit -n)");
    bool connected = socket && connect_within(socket, *address, limit, check),
         alone = connected && is_its_own_peer(socket);
    if (connected && !alone) {
      prepare(socket);
      return socket;
    }
    reason = std::strerror(alone ? ECONNREFUSED : errno);
  }
  return {};
}

static void wait_for(const Socket& socket, short what, int milliseconds) {
  pollfd ready{socket.descriptor(), what, 0};
  poll(&ready, 1, milliseconds);
}
void wait_readable(const Socket& socket) { wait_for(socket, POLLIN, 200); }
void wait_writable(const Socket& socket) { wait_for(socket, POLLOUT, 50); }
std::vector<bool> wait_readable(const std::vector<const Socket*>& sockets, std::chrono::milliseconds limit) {
  std::vector<pollfd> ready;
  for (const Socket* socket : sockets) ready.push_back({socket->descriptor(), POLLIN, 0});
  poll(ready.data(), ready.size(), int(limit.count()));
  std::vector<bool> arrived;
  for (const pollfd& one : ready) arrived.push_back(one.revents != 0);
  return arrived;
}

Check until(std::chrono::steady_clock::time_point deadline) {
  return [deadline] {
    if (std::chrono::steady_clock::now() > deadline) fail_as(ErrorKind::rank_failed, "no answer");
  };
}

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
