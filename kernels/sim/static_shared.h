#pragma once
// Variables declared __shared__. They are thread-local variables of the program or library that holds the kernel; the
// library's symbol table tells where each begins and ends.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <shardgrad/kernels/sim/shadow.h>

namespace shardgrad::sim {

class StaticShared {
 public:
  /// The __shared__ variable that holds this address, or the whole of the library's thread-local memory where its symbol
  /// table is missing. Null when the address is not thread-local memory of the calling thread.
  Region* find(uintptr_t address);

 private:
  struct Variable {
    Region region;
    std::vector<Cell> cells;
    std::string name;
  };
  std::deque<Variable> variables_;  // those found so far
};

}  // namespace shardgrad::sim
