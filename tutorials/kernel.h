#pragma once
// What a kernel of the ladder (rungs K1 to K5) and the program that launches it both know.

#include <shardgrad/kernels/table.h>

namespace learn {

/// A row of the kernel table: (y, score, a, b). b is left out where a kernel has one operand; score is i64, (2, kinds):
/// what the thread that does most does, and what all threads do together.
using Kernel = sg::Slot<sg::OutView, sg::OutView, sg::View, sg::View>;

/// What is counted of a thread. `multiplications` are instructions that multiply: one of a tensor core is one.
enum Kind : unsigned { global_reads, global_writes, shared_reads, shared_writes, multiplications, kinds };

}  // namespace learn
