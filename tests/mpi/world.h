#pragma once
// Tests in this folder run on every rank of a job started by mpirun, in the same order.

#include <gtest/gtest.h>

#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::testing {

/// The group of all ranks. Its kind is what SHARDGRAD_GROUP says: mpi, or shared_memory.
dist::ProcessGroup& world();

}  // namespace shardgrad::testing
