// What a build without MPI has in place of mpi_bootstrap.cpp.

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>

namespace shardgrad::dist {

std::string mpi_library() { return ""; }

std::unique_ptr<Bootstrap> make_mpi_bootstrap() {
  fail_as(ErrorKind::missing, "this build has no MPI; start the ranks of one machine with: shardgrad launch -n N …");
}

}  // namespace shardgrad::dist
