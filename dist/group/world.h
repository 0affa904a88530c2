#pragma once
// From a bootstrap to the group of all ranks.

#include <memory>

#include <shardgrad/core/environment.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::dist {

/// What GroupOptions::kind may be for the group of all ranks, too.
inline constexpr EnvironmentChoice kGroupChoice = {"SHARDGRAD_GROUP",
                                                   {"single", "shared_memory", "two_level", "mpi", "nccl"}};

/// The group of all ranks of the job, of the kind that options or SHARDGRAD_GROUP ask for; by default one rank alone,
/// NCCL where every rank has a GPU of its own and device cuda, shared memory on one machine, "two_level" on several:
/// shared memory within each, and messages between them, by MPI where it started the ranks and else by TCP. Where the
/// ranks of a machine cannot share enough memory, MPI takes its place with one line on standard error; without MPI,
/// throws Error(missing) with the remedy. Called by all ranks.
std::unique_ptr<ProcessGroup> make_world(Bootstrap& bootstrap, std::shared_ptr<Control> control, GroupOptions options);

}  // namespace shardgrad::dist
