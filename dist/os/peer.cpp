#include <shardgrad/dist/os/peer.h>

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {
namespace {

/// One end of a connection.
struct End {
  int family = AF_UNSPEC;
  uint32_t words[4] = {};  // as they stand in memory
  int port = 0;
};

// Of a socket of both kinds.
End as_ipv4_where_it_is(const End& end) {
  in6_addr v6;
  std::memcpy(&v6, end.words, sizeof(v6));
  return end.family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6) ? End{AF_INET, {end.words[3]}, end.port} : end;
}

End end_of(int descriptor, decltype(getsockname) which) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  End end;
  if (which(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return end;
  end.family = address.ss_family;
  if (end.family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    end.words[0] = v4.sin_addr.s_addr;
    end.port = ntohs(v4.sin_port);
  } else if (end.family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(end.words, &v6.sin6_addr, sizeof(end.words));
    end.port = ntohs(v6.sin6_port);
  }
  return as_ipv4_where_it_is(end);
}

End mine(const Socket& socket) { return end_of(socket.descriptor(), getsockname); }
End theirs(const Socket& socket) { return end_of(socket.descriptor(), getpeername); }

bool is_loopback_end(const End& end) {
  if (end.family == AF_INET) return ntohl(end.words[0]) >> 24 == 127;
  in6_addr v6;
  std::memcpy(&v6, end.words, sizeof(v6));
  return end.family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6);
}

// As /proc/net/tcp writes it: "0100007F:C2DA".
std::string in_tcp(const End& end) {
  char text[16] = {};
  std::snprintf(text, sizeof(text), "%08X:%04X", end.words[0], unsigned(end.port));
  return text;
}

// As /proc/net/tcp6 writes it, with IPv4 in IPv6's form: "0000000000000000FFFF00000100007F:C2DA".
std::string in_tcp6(const End& end) {
  End v6 = end;
  if (end.family == AF_INET) v6 = {AF_INET6, {0, 0, htonl(0xFFFF), end.words[0]}, end.port};
  char text[48] = {};
  std::snprintf(text, sizeof(text), "%08X%08X%08X%08X:%04X", v6.words[0], v6.words[1], v6.words[2], v6.words[3],
                unsigned(v6.port));
  return text;
}

// Of the socket that a file of /proc/net has between these ends.
std::optional<uid_t> user_in(const char* path, const std::string& from, const std::string& to) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::string number, local, remote, skipped;
    uid_t user = 0;
    ino_t inode = 0;
    std::istringstream words(line);
    words >> number >> local >> remote;
    if (local != from || remote != to) continue;
    words >> skipped >> skipped >> skipped >> skipped >> user >> skipped >> inode;
    if (words && inode != 0) return user;  // a socket that nobody holds is shown as root's
  }
  return {};
}

std::set<ino_t> sockets_of(pid_t process) {
  std::set<ino_t> inodes;
  std::error_code gone;
  std::filesystem::directory_iterator all(concat("/proc/", process, "/fd"), gone), end;
  for (; !gone && all != end; all.increment(gone)) {
    std::error_code closed;
    std::string what = std::filesystem::read_symlink(all->path(), closed);
    if (what.starts_with("socket:[")) inodes.insert(std::strtoul(what.c_str() + 8, nullptr, 10));
  }
  return inodes;
}

/// What the kernel tells of a connection, as far as its tcp_info has it at this place (linux/tcp.h), which the C
/// library's has not.
struct Exchanged {
  std::byte before[120];
  uint64_t acknowledged, received;  // bytes
};

using Visit = std::function<void(const End& there, ino_t socket, const Exchanged& bytes)>;

End end_of(int family, const __be32* address, __be16 port) {
  End end{family, {}, ntohs(port)};
  std::copy_n(address, 4, end.words);
  return as_ipv4_where_it_is(end);
}

void visit_tcp_socket(const nlmsghdr* message, const Visit& visit) {
  const auto* one = static_cast<const inet_diag_msg*>(NLMSG_DATA(message));
  auto left = int(message->nlmsg_len - NLMSG_LENGTH(sizeof(*one)));
  const auto* attribute = reinterpret_cast<const rtattr*>(one + 1);
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    Exchanged bytes{};
    if (attribute->rta_type != INET_DIAG_INFO || RTA_PAYLOAD(attribute) < sizeof(bytes)) continue;
    std::memcpy(&bytes, RTA_DATA(attribute), sizeof(bytes));
    visit(end_of(one->idiag_family, one->id.idiag_dst, one->id.idiag_dport), one->idiag_inode, bytes);
  }
}

/// The established connections of this network, as the kernel tells them (man 7 sock_diag).
void visit_tcp_sockets(int family, const Visit& visit) {
  Socket kernel(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  struct {
    nlmsghdr head;
    inet_diag_req_v2 body;
  } request{};
  request.head = {sizeof(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0};
  request.body.sdiag_family = uint8_t(family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  request.body.idiag_states = 1 << TCP_ESTABLISHED;
  if (!kernel || send(kernel.descriptor(), &request, sizeof(request), 0) != ssize_t(sizeof(request))) return;
  alignas(nlmsghdr) char bytes[32 << 10];
  for (;;) {
    auto left = int(recv(kernel.descriptor(), bytes, sizeof(bytes), 0));
    if (left <= 0) return;
    const auto* message = reinterpret_cast<const nlmsghdr*>(bytes);
    for (; left > 0 && NLMSG_OK(message, unsigned(left)); message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) return;
      visit_tcp_socket(message, visit);
    }
  }
}

}  // namespace

static std::string address_of(const End& end) {
  char text[INET6_ADDRSTRLEN] = {};
  return end.family != AF_UNSPEC && inet_ntop(end.family, end.words, text, sizeof(text)) ? text : "";
}

std::string own_address(const Socket& socket) { return address_of(mine(socket)); }
std::string other_address(const Socket& socket) { return address_of(theirs(socket)); }

std::string address_of_peer(const Socket& socket) {
  End end = theirs(socket);
  std::string address = address_of(end);
  return address.empty() ? "an unknown address" : concat(address, ":", end.port);
}

bool is_loopback(const Socket& socket) { return is_loopback_end(mine(socket)); }

std::optional<uid_t> user_of_peer(const Socket& socket) {
  End here = mine(socket), there = theirs(socket);
  std::optional<uid_t> user;
  if (there.family == AF_INET) user = user_in("/proc/net/tcp", in_tcp(there), in_tcp(here));
  // An IPv4 connection, too, when the other end listens on IPv6's every address.
  return user ? user : user_in("/proc/net/tcp6", in_tcp6(there), in_tcp6(here));
}

std::string other_user(const Socket& socket) {
  if (!is_loopback_end(theirs(socket))) return {};
  std::optional<uid_t> user = user_of_peer(socket);
  if (user && (*user == geteuid() || *user == 0)) return {};
  return concat("its user is ", user ? concat("another one (", *user, ")") : "not known",
                ", and without SHARDGRAD_JOB_TOKEN only one user's processes may meet");
}

std::map<std::string, uint64_t> exchanged_by_address(const std::vector<pid_t>& processes,
                                                     const std::vector<const Socket*>& but) {
  std::set<ino_t> sockets;
  for (pid_t process : processes) sockets.merge(sockets_of(process));
  for (const Socket* socket : but) {
    struct stat file {};
    if (fstat(socket->descriptor(), &file) == 0) sockets.erase(file.st_ino);
  }
  std::map<std::string, uint64_t> sums;
  auto add = [&](const End& there, ino_t number, const Exchanged& bytes) {
    if (sockets.contains(number)) sums[address_of(there)] += bytes.received + bytes.acknowledged;
  };
  for (int family : {AF_INET, AF_INET6}) visit_tcp_sockets(family, add);
  return sums;
}

uint64_t received_through(const Socket& socket) {
  Exchanged bytes{};
  socklen_t length = sizeof(bytes);
  bool told = getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_INFO, &bytes, &length) == 0;
  return told && length == sizeof(bytes) ? bytes.received : 0;
}

}  // namespace shardgrad::dist
