// What a build without MPI has in place of mpi_bootstrap.cpp and mpi_transport.cpp.

#include <shardgrad/core/error.h>
#include <shardgrad/dist/transports.h>

namespace shardgrad::dist {

std::string mpi_library() { return ""; }

std::unique_ptr<Bootstrap> make_mpi_bootstrap() {
  fail_as(ErrorKind::missing, "this build has no MPI; start the ranks of one machine with: shardgrad launch -n N …");
}

std::unique_ptr<Transport> make_mpi_transport(Bootstrap&, std::shared_ptr<Control>) {
  fail_as(ErrorKind::missing, "this build has no MPI");
}

}  // namespace shardgrad::dist
