#pragma once
// What stands behind `shardgrad launch -n N program …`: the ranks of one machine, by mpirun where this build has MPI,
// by forking otherwise.

#include <string>
#include <vector>

namespace shardgrad::dist {

struct LaunchOptions {
  /// "mpi", "local" (no MPI; see launch_local.h), or empty: MPI where there is one.
  std::string by;
  int threads = 0;  ///< CPU threads per rank; 0: OMP_NUM_THREADS, or else cores / ranks, at least 1
};

/// The mpirun command for n ranks of argv, for the MPI of this build: what its launcher wants to hear on this machine
/// about root, slots, binding and threads.
std::vector<std::string> mpirun_command(int n, const std::vector<std::string>& argv, const LaunchOptions& options = {});

/// As they are typed, quoted where a shell wants it.
std::string shell_line(const std::vector<std::string>& words);

/// Prints the command, runs it, passes signals on (see dist/os/children.h), prints the job's first cause last on
/// standard error, and returns its exit code.
int launch(int n, const std::vector<std::string>& argv, const LaunchOptions& options = {});

}  // namespace shardgrad::dist
