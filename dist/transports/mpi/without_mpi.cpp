// What a build without MPI has in place of mpi_transport.cpp.

#include <shardgrad/core/error.h>
#include <shardgrad/dist/transports/transports.h>

namespace shardgrad::dist {

std::unique_ptr<Transport> make_mpi_transport(Bootstrap&, std::shared_ptr<Control>) {
  fail_as(ErrorKind::missing, "this build has no MPI");
}

}  // namespace shardgrad::dist
