#pragma once
// How bytes go between the ranks of different machines: messages between two ranks, which arrive in the order in which
// they were sent. Whoever posts them knows both ends' order and lengths. One implementation per way to send.

#include <memory>
#include <vector>

#include <shardgrad/dist/os/sockets.h>
#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::dist::two_level {

class Link {
 public:
  Link() = default;
  virtual ~Link() = default;
  Link(const Link&) = delete;

  /// Posts a message; the memory is its own until complete() returns. Nothing is sent of one without bytes.
  virtual void send(const Call& call, int peer, const void* data, size_t bytes) = 0;
  virtual void receive(const Call& call, int peer, void* data, size_t bytes) = 0;
  /// Returns when all that was posted has been sent and received. Calls check() again and again, which may throw.
  virtual void complete(const Check& check) = 0;

  /// The link of a group of these ranks of this one. `group` is its number, which no other group of the job has.
  virtual std::unique_ptr<Link> join(int64_t group, const std::vector<int>& members, int rank) = 0;
};

/// Between all ranks of the job, by MPI; the bootstrap's name is "mpi".
std::unique_ptr<Link> make_mpi_link(Bootstrap& bootstrap);

}  // namespace shardgrad::dist::two_level
