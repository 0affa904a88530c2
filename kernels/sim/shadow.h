#pragma once
// What the simulator remembers of memory: per word of 4 bytes, who wrote it last and who has read it since.
//
// Two accesses of different threads to the same byte, one of them a write, are a race unless something orders them:
//
//     tile[t] = x;          write by (thread 5, epoch 0)
//     __syncthreads();      every thread's epoch becomes 1
//     y = tile[t ^ 1];      read by thread 4 in epoch 1: the write's epoch 0 is older, ordered
//
// Within a warp __syncwarp orders too: each lane keeps a clock per lane of its warp (what it knows of the others), and
// the lanes that meet take the maximum of what any of them knows. Between blocks only a __threadfence followed by an
// atomic (publish) and an atomic in the later block (acquire) order.

#include <cstddef>
#include <cstdint>

#include <shardgrad/core/dtype.h>

namespace shardgrad::sim {

/// A place in the code: the address of an instruction, or the number of a SourceLine (see Places).
using Code = uint64_t;

/// By whom and when an access was made.
struct Stamp {
  uint32_t block = 0;  ///< number of the block's run; blocks of one launch have consecutive ones
  uint32_t epoch = 0;  ///< barriers that the block had passed
  uint32_t clock = 0;  ///< warp synchronisations that the thread had passed
  uint16_t thread = 0;
  bool atomic = false;
  Code code = 0;
};

/// The threads that have read a word since its last write.
struct Readers {
  Stamp last;
  uint32_t lanes = 0;         ///< of last's warp, in its epoch
  uint32_t clock = 0;         ///< the oldest of those lanes' clocks
  bool other_warps = false;   ///< threads of other warps too
  bool other_blocks = false;  ///< threads of other blocks too
};

struct Cell {
  uint32_t era = 0;  ///< the block (shared memory) or launch (global memory) that the rest belongs to
  uint8_t written = 0, write_mask = 0, read_mask = 0;  ///< a bit per byte
  Stamp write;
  Readers readers;
};

/// A range of memory that a kernel may touch, with its cells; none where nobody writes.
struct Region {
  enum class Kind : uint8_t { parameters, shared, global };
  uintptr_t begin = 0, end = 0;
  Kind kind = Kind::global;
  bool writable = true;
  Cell* cells = nullptr;
  const char* what = "";
  const char* owner = "";     ///< the kernel that alone may touch it; empty: any
  const char* function = "";  ///< of a shared variable: the function in which it stands
  size_t function_bytes = 0;  ///< of all shared variables of that function
  DType dtype = DType::u8;    ///< of the elements; u8 where that is not known
  uint32_t launch = 0;        ///< the last one that has touched it
  bool holds(uintptr_t address, size_t bytes) const { return address >= begin && address + bytes <= end; }
  Cell& cell(uintptr_t word) const { return cells[(word - (begin & ~uintptr_t(3))) / 4]; }
};
inline size_t cells_for(uintptr_t begin, uintptr_t end) { return ((end + 3) / 4) - begin / 4; }

}  // namespace shardgrad::sim
