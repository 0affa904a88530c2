#pragma once
// A link by sockets, of which two ranks have one when they first need it.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/transports/two_level/link.h>

namespace shardgrad::dist::two_level {

/// The group of all ranks.
inline constexpr int64_t kWorldGroup = 1;

/// Where sockets come from. Numbers are ranks of the world.
class Doors {
 public:
  Doors() = default;
  virtual ~Doors() = default;
  Doors(const Doors&) = delete;
  /// One end of the connection of a group between two ranks, of which each asks once, `rank` being who asks.
  virtual Socket open(int64_t group, int rank, int peer, const Check& check) = 0;
};

/// Doors between ranks that are threads of one process.
std::shared_ptr<Doors> make_local_doors();
/// Doors by TCP between the ranks of a job that met by TCP: each listens on a free port of the address by which rank 0
/// knows its machine, and of two ranks the lower one calls. Who calls proves that it knows a random word that rank 0
/// has sent through the bootstrap (dist/bootstrap/host.h). Called by all ranks. Throws Error(missing), with the reason,
/// when one cannot listen. A rank that refuses to be called for so long ends the job by name, and one that does not
/// answer for four times as long: on a slow cable a first word stands in line behind data.
std::shared_ptr<Doors> make_tcp_doors(Bootstrap& bootstrap, std::chrono::seconds reach = std::chrono::seconds(30));

/// `members`: the group's ranks in the world. Ranks that are in different calls end the job, as in shared memory.
std::unique_ptr<Link> make_socket_link(std::shared_ptr<Doors> doors, int64_t group, std::vector<int> members, int rank,
                                       std::shared_ptr<Control> control);

}  // namespace shardgrad::dist::two_level
