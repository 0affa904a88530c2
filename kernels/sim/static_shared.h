#pragma once
// Variables declared __shared__. They are thread-local variables of the program or library that holds the kernel; the
// library's symbol table tells where each begins and ends.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <shardgrad/kernels/sim/shadow.h>

namespace shardgrad::sim {

/// The data of the program, or of one of its libraries, that holds an address, to be read only; empty where none does.
Region program_data(uintptr_t address);

class StaticShared {
 public:
  /// The __shared__ variable that holds this address, or the whole of the library's thread-local memory where its
  /// symbol table is missing. Null when the address is not thread-local memory of the calling thread.
  Region* find(uintptr_t address);

  /// The library whose thread-local memory holds an address, and where that memory is in the calling thread.
  struct Library {
    uintptr_t address, begin = 0, end = 0;
    std::string file = {};
  };
  /// A thread-local variable of a library, the number of its source file, since anonymous namespaces have the same
  /// names there, and the function in whose body it stands, if it does.
  struct Symbol {
    uint64_t offset, size;
    int source;
    std::string name, function;
  };

 private:
  struct Variable {
    Region region;
    std::vector<Cell> cells;
    std::string name, owner, function;
  };
  Region& enter(const Library& library);
  std::vector<std::unique_ptr<Variable>> variables_;  // those found so far
  std::map<std::string, std::vector<Symbol>> symbols_;
};

}  // namespace shardgrad::sim
