#include <shardgrad/dist/os/peer.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {
namespace {

/// One end of a connection. IPv4 also where a socket of both kinds says it as IPv6 does.
struct End {
  int family = AF_UNSPEC;
  uint32_t words[4] = {};  // as they stand in memory
  int port = 0;
};

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
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) end = {AF_INET, {end.words[3]}, end.port};
  }
  return end;
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

bool same_machine(const End& a, const End& b) {
  return a.family == b.family && a.family != AF_UNSPEC && std::ranges::equal(a.words, b.words);
}

}  // namespace

std::string address_of_peer(const Socket& socket) {
  End end = theirs(socket);
  char text[INET6_ADDRSTRLEN] = {};
  if (end.family == AF_UNSPEC || !inet_ntop(end.family, end.words, text, sizeof(text))) return "an unknown address";
  return concat(text, ":", end.port);
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

std::optional<std::chrono::milliseconds> last_arrival_from(const Socket& socket) {
  End there = theirs(socket);
  std::optional<std::chrono::milliseconds> last;
  std::error_code gone;
  std::filesystem::directory_iterator all("/proc/self/fd", gone), end;
  for (; !gone && all != end; all.increment(gone)) {
    int descriptor = std::atoi(all->path().filename().c_str());
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (!same_machine(end_of(descriptor, getpeername), there)) continue;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    std::chrono::milliseconds ago(info.tcpi_last_data_recv);
    last = std::min(last.value_or(ago), ago);
  }
  return last;
}

}  // namespace shardgrad::dist
