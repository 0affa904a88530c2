#pragma once
// What `shardgrad doctor` knows of this build, this machine and this shell. The checks (checks.h) look at nothing else,
// so a test may pretend any of it.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/cuda/survey.h>
#include <shardgrad/dist/os/command.h>
#include <shardgrad/train/build_info.h>

namespace shardgrad::train::doctor {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

/// Of a process, as `ulimit` says; bytes or how many.
struct Limits {
  uint64_t files = kUnlimited, processes = kUnlimited, file_bytes = kUnlimited, address_bytes = kUnlimited,
           stack_bytes = kUnlimited, locked_bytes = kUnlimited;
};

struct Machine {
  int ranks = 2;  ///< that are to train here

  // This build.
  BuildInfo build{};
  std::string mpi = {};         ///< dist::mpi_library
  std::string nccl = {};        ///< dist::nccl_library
  std::string nccl_fault = {};  ///< dist::why_not_nccl

  // The machine, as far as this process may use it. A fault is in the system's words; empty: there is none.
  std::string host = {};
  std::string isa = "plain";  ///< the best instruction set that the CPU has
  int cpus = 1, cores = 1;    ///< that are there, and that this process may use
  Limits limits{};
  bool root = false;
  bool loopback = true, pidfd = true, reads_other_processes = true, infiniband = false, nvidia = false;
  std::string temporary_folder = "/tmp";
  std::string temporary_fault = {};         ///< nothing can be made there
  std::string proc_fault = {};              ///< /proc is not there
  std::string heap_fault = {};              ///< the ranks cannot share memory
  std::optional<uint64_t> dev_shm_bytes{};  ///< free in /dev/shm; nothing: it is not there
  CudaSurvey cuda{};

  // What is asked while examining.
  std::map<std::string, std::string> environment{};
  /// The text of a file, if it can be read.
  std::function<std::optional<std::string>(const std::string& path)> read;
  /// What a program says, which gets five seconds; nothing when PATH does not lead to it.
  std::function<std::optional<dist::CommandOutput>(const std::vector<std::string>& argv)> run;

  /// Null when it is not set.
  const char* variable(const char* name) const;
  /// The number in a variable, or 0.
  int number(const char* name) const;
  /// How many tasks SLURM gives this job on a machine, rounded up; 0 outside of one.
  int tasks_of_slurm() const;
};

/// The machine that this process runs on, for so many ranks; 0: tasks_of_slurm, or else 2. What
/// cannot be asked without trying is tried: a heap is mapped (no page of it is touched but the first ones), a folder
/// made in TMPDIR and removed.
Machine this_machine(int ranks);

/// Bytes that a process may use there: the machine's, or fewer, which a container or a job is allowed; kUnlimited where
/// neither is known.
uint64_t allowed_memory(const Machine& m);
/// Of this process.
uint64_t allowed_memory();

}  // namespace shardgrad::train::doctor
