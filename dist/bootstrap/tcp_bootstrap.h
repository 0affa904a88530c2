#pragma once
// Ranks that find each other by TCP, on machines without MPI. Each process is told by its environment who it is, in
// the names that torchrun uses, by whatever started it (srun, a pod of Kubernetes, a shell on each machine):
//     RANK, WORLD_SIZE           which of how many
//     MASTER_ADDR, MASTER_PORT   the machine of rank 0, and a free port there, which rank 0 listens on
//     SHARDGRAD_JOB_TOKEN        a secret of the job, without which nobody is let in
//     SHARDGRAD_RENDEZVOUS_SECONDS   how long ranks may take to come; 300 by default
//
// Once they have met, ranks are numbered machine by machine, and on a machine in the order of RANK: with RANK 0 and 2
// on one machine and 1 and 3 on another, these are ranks 0, 1 and 2, 3. Rank 0 is RANK 0.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <shardgrad/dist/bootstrap/bootstrap.h>

namespace shardgrad::dist {

struct TcpPlace {
  int rank, size;    ///< as the environment has them
  std::string host;  ///< of rank 0
  int port;
  std::string token = {};  ///< of the job (dist/bootstrap/host.h); empty: none
  std::chrono::milliseconds limit{std::chrono::minutes(5)};
};

/// Meets the other ranks. Throws Error(rank_failed) after `limit`, naming the ranks that are missing and who was turned
/// away meanwhile: strangers, and processes that contradict rank 0, to which it is an Error(input).
std::unique_ptr<Bootstrap> make_tcp_bootstrap(const TcpPlace& place);

/// What the variables above say; nothing when RANK and WORLD_SIZE are unset. Throws Error(input) naming variables that
/// are missing or no numbers, and for a token that can be guessed.
std::optional<TcpPlace> tcp_place(const EnvironmentLookup& variable);
/// The bootstrap of that place; null when there is none.
std::unique_ptr<Bootstrap> tcp_bootstrap_from_environment();

}  // namespace shardgrad::dist
