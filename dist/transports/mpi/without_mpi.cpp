// What a build without MPI has in place of mpi_transport.cpp and mpi_link.cpp.

#include <shardgrad/core/error.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/transports/two_level/link.h>

namespace shardgrad::dist {

std::unique_ptr<Transport> make_mpi_transport(Bootstrap&, std::shared_ptr<Control>) {
  fail_as(ErrorKind::missing, "this build has no MPI");
}

std::unique_ptr<two_level::Link> two_level::make_mpi_link(Bootstrap&) {
  fail_as(ErrorKind::missing, "this build has no MPI");
}

}  // namespace shardgrad::dist
