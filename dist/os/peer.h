#pragma once
// Who is at the other end of a connection, as far as the system knows.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/dist/os/sockets.h>

namespace shardgrad::dist {

/// Without a port, that of this end: "10.0.0.9". Empty where it is not connected.
std::string own_address(const Socket& socket);
/// Likewise, that of the other end.
std::string other_address(const Socket& socket);
/// "10.0.0.9:41512".
std::string address_of_peer(const Socket& socket);
/// Whether a socket, connected or listening, has an address that only this machine reaches.
bool is_loopback(const Socket& socket);
/// The user whose process holds the other end of a connection within this machine. Nothing when no process holds it any
/// more, or the system does not tell (/proc is not mounted).
std::optional<uid_t> user_of_peer(const Socket& socket);
/// Why the process at the other end may not take part in a job without a token: within this machine, it is another
/// user's. Empty when it may.
std::string other_user(const Socket& socket);
/// How many bytes these processes of this machine have received from each address, or sent to it and it has
/// acknowledged, through any TCP connections but these: an MPI's, too. Empty where the system does not tell.
std::map<std::string, uint64_t> exchanged_by_address(const std::vector<pid_t>& processes,
                                                     const std::vector<const Socket*>& but);
/// How many bytes have come through a connection; 0 where it is none of TCP. What was sent says less: a kernel
/// acknowledges a heartbeat for a process that stands still.
uint64_t received_through(const Socket& socket);

}  // namespace shardgrad::dist
