#pragma once
// What the MPI files share: MPI itself, which is one per process. Only files named mpi_* include this.

#include <mpi.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shardgrad::dist {

/// MPI from its start to its end. Calls come from several threads, one at a time: under `mutex`
/// (MPI_THREAD_SERIALIZED).
class MpiSession {
 public:
  /// Starts MPI. Throws Error(missing) when it was started by somebody else with less than MPI_THREAD_SERIALIZED.
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;

  MPI_Comm world() const { return world_; }
  int max_tag() const { return max_tag_; }
  std::mutex& mutex() { return mutex_; }

  /// Gives this rank another number, of as many; called by all ranks before anything else is.
  void renumber(int rank);

  /// Waits for all requests without holding the core: polls, then sleeps for longer and longer, up to 0.2 ms. Calls
  /// check() again and again; when it throws, requests of single messages are given up. Those of collectives cannot be.
  enum class Requests { messages, collective };
  void wait(std::vector<MPI_Request>& requests, const std::function<void()>& check, Requests kind = Requests::messages);
  /// Removes the names of Open MPI's shared-memory files, which every rank has mapped by now: whatever happens to the
  /// job, none is left in /dev/shm. Called after all ranks have met.
  void unlink_segments();
  /// Ends MPI in good order; `meet` returns when all ranks have called it.
  void finish(const std::function<void()>& meet);

 private:
  bool all_done(std::vector<MPI_Request>& requests);
  MPI_Comm world_ = MPI_COMM_NULL;
  int max_tag_ = 0;
  bool started_here_ = false;
  std::vector<std::string> unlinked_;
  std::mutex mutex_;
};

/// The session of a bootstrap made by make_mpi_bootstrap.
class Bootstrap;
std::shared_ptr<MpiSession> mpi_session(Bootstrap& bootstrap);

}  // namespace shardgrad::dist
