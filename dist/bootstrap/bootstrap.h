#pragma once
// How the ranks of a job find each other before there is a process group: by MPI, by TCP, as processes forked on this
// node, as threads, or alone.

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <shardgrad/dist/os/rank_map.h>

namespace shardgrad::dist {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  /// "single", "threads", "forked", "tcp" or "mpi".
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const RankMap& ranks() const { return map_; }
  int node_rank() const { return map_.node_rank(rank_); }
  int local_rank() const { return map_.local_rank(rank_); }
  int local_size() const { return map_.local_size(node_rank()); }

  /// Every rank's blob, by rank. Called by all ranks. Throws when the calling thread's context is aborted meanwhile.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  void barrier() { exchange(""); }
  /// The first rank's error, by rank; empty where no rank has one. Called by all ranks.
  std::string any_error(const std::string& mine);
  /// Zeroed memory that the ranks of a machine share for their control channel, aligned to 128. Called once, by all
  /// ranks. Null where they cannot share memory, and `reason` says why.
  virtual std::shared_ptr<void> control_memory(size_t bytes, std::string& reason);
  /// The name by which this rank reaches the machine of rank 0; empty when it was not told one.
  virtual std::string host_of_rank_0() const { return {}; }
  /// The address at which other machines reach this one; empty where it is not known, or this is rank 0's machine and
  /// not rank 0.
  virtual std::string address() const { return {}; }
  /// Keeps memory that ranks share until the job is over: work that is still queued may touch it after the last group
  /// that used it has gone.
  void hold(std::shared_ptr<void> memory) { held_.push_back(std::move(memory)); }
  /// Leaves the job in good order, after the last use of everything else here. Called by all ranks.
  virtual void finish() {}
  /// Ends all ranks the launcher's way, if it has one: then it does not return. For the program's top level only.
  virtual void abort(int) {}

 protected:
  Bootstrap(std::string name, int rank, int size, RankMap map)
      : name_(std::move(name)), rank_(rank), size_(size), map_(std::move(map)) {}

 private:
  std::string name_;
  int rank_, size_;
  RankMap map_;
  std::vector<std::shared_ptr<void>> held_;
};

/// The text of an environment variable, or null.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// As launch_local's environment says; by MPI under mpirun or srun; by TCP where RANK and WORLD_SIZE are set
/// (dist/bootstrap/tcp_bootstrap.h); alone otherwise. Throws Error(input), with the line to type, when a launcher
/// started several processes but they would not find each other.
std::unique_ptr<Bootstrap> bootstrap_from_environment();
/// Whether nothing says that this process has a place among ranks: the environment is neither launch_local's, nor an
/// MPI launcher's of several, nor has it RANK or WORLD_SIZE.
bool started_alone();
/// How many processes a launcher says it has started, by its environment; 1 without a launcher.
int launched_processes();
/// The same of any launcher: also of launch_local, and where RANK and WORLD_SIZE are set.
int processes_of_job();
/// This process's number among them; 0 without a launcher.
int launched_rank();
/// Whether srun has started several processes and given an MPI library no way to connect them: it was not told --mpi.
bool srun_gave_no_way(const EnvironmentLookup& variable);

/// How long ranks wait at the start for those that do not come: SHARDGRAD_RENDEZVOUS_SECONDS, 300 by default.
/// Throws Error(input) when it is no number of seconds.
std::chrono::seconds rendezvous_limit(const EnvironmentLookup& variable = std::getenv);
/// The whole number that the variable `name` has as its text. Throws Error(input), naming it, for anything else.
int number_of(const char* name, const char* text, int least, int most);

std::unique_ptr<Bootstrap> make_single_bootstrap();
/// Starts MPI. Throws Error(missing) in a build without it.
std::unique_ptr<Bootstrap> make_mpi_bootstrap();
/// The MPI library this build uses, as it names itself; empty without one.
std::string mpi_library();

/// Ranks that share `memory`: zeroed when new, local_bootstrap_bytes(size) long, aligned to 128.
std::unique_ptr<Bootstrap> make_local_bootstrap(std::string name, std::shared_ptr<void> memory, int rank, int size);
size_t local_bootstrap_bytes(int size);

}  // namespace shardgrad::dist
