#pragma once
// What `shardgrad doctor` looks at. Each check is a function of the machine alone.

#include <shardgrad/train/doctor/finding.h>
#include <shardgrad/train/doctor/machine.h>

namespace shardgrad::train::doctor {

// checks_of_the_system.cpp
Findings check_build(const Machine& machine);
Findings check_cpu(const Machine& machine);
Findings check_ranks(const Machine& machine);
Findings check_memory(const Machine& machine);
Findings check_shared_memory(const Machine& machine);
Findings check_temporary_folder(const Machine& machine);
Findings check_processes(const Machine& machine);
Findings check_limits(const Machine& machine);

// checks_of_launchers.cpp
Findings check_mpi(const Machine& machine);
Findings check_loopback(const Machine& machine);
Findings check_slurm(const Machine& machine);

// checks_of_gpus.cpp
Findings check_cuda(const Machine& machine);
Findings check_nccl(const Machine& machine);

// checks_of_variables.cpp
Findings check_variables(const Machine& machine);

/// All of them, in the order of the screen.
Findings examine(const Machine& machine);

}  // namespace shardgrad::train::doctor
