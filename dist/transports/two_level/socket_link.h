#pragma once
// A link by sockets, of which two ranks have one when they first need it.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <shardgrad/dist/transports/two_level/link.h>

namespace shardgrad::dist::two_level {

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

/// `members`: the group's ranks in the world. Ranks that are in different calls end the job, as in shared memory.
std::unique_ptr<Link> make_socket_link(std::shared_ptr<Doors> doors, int64_t group, std::vector<int> members, int rank,
                                       std::shared_ptr<Control> control);

}  // namespace shardgrad::dist::two_level
