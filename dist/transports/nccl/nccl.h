#pragma once
// What the rest of the library may ask about NCCL (make_nccl_transport is in transports.h).

#include <string>

#include <shardgrad/core/environment.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>

namespace shardgrad::dist {

inline constexpr EnvironmentChoice kNcclSumsChoice = {"SHARDGRAD_NCCL_SUMS", {"nccl", "tree"}};
inline constexpr EnvironmentChoice kShareGpuChoice = environment_switch("SHARDGRAD_NCCL_SHARE_GPU");

/// The NCCL this build uses, "NCCL 2.28.9"; empty without one.
std::string nccl_library();
/// Why that one cannot be used, with the remedy: it is too old, or none that fits the header which the build was
/// compiled with. Empty when it can, and without one.
std::string why_not_nccl();

/// Which ranks have to share a GPU, as one sentence, or "" when each has its own. Called by all ranks, on device cuda.
std::string shared_gpus(Bootstrap& bootstrap);

/// Sets what NCCL reads from the environment before its first communicator, where the user has not. Changing the
/// environment is safe only while no other thread reads it: called before ranks that are threads start.
void set_nccl_environment(int rank);

/// Whether sums have the tree order of the other transports (SHARDGRAD_NCCL_SUMS). Throws Error(input) for a word that
/// is neither.
inline bool tree_sums_wanted() { return environment_choice(kNcclSumsChoice) == "tree"; }

/// Throws Error(input) with the choices when ranks share a GPU and were not told to. Called by all ranks.
void check_gpus(Bootstrap& bootstrap);

/// Makes a communicator of one rank on GPU `gpu` and ends it. Throws Error(missing) with the reason when it cannot.
void try_nccl(int gpu);

}  // namespace shardgrad::dist
