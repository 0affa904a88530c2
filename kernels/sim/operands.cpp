#include <shardgrad/kernels/sim/operands.h>

#include <algorithm>

#include <shardgrad/core/poison.h>
#include <shardgrad/kernels/sim/machine.h>
#include <shardgrad/kernels/sim/runtime.h>

namespace shardgrad::sim {

static thread_local Operands* newest = nullptr;

Operands::Operands() : outer_(newest) {
  newest = this;
  Machine::mine().begin_operation();
}
Operands::~Operands() { newest = outer_; }
Operands* Operands::current() { return newest; }

void Operands::add(const void* begin, size_t bytes, bool writable, const char* what, DType dtype) {
  auto address = reinterpret_cast<uintptr_t>(begin);
  if (begin && bytes > 0) ranges_.push_back({address, address + bytes, writable, what, dtype});
}

void Operands::remove(const void* begin) {
  std::erase_if(ranges_, [=](const Range& range) { return range.begin == reinterpret_cast<uintptr_t>(begin); });
}

// Kernels run at once, so the host's memory serves, whose allocator needs no stream.
Scratch::Scratch(const Launch&, size_t bytes) : memory_(kCpu, std::max<size_t>(bytes, 2)) {
  poison_bytes(memory_.as<char>(), bytes);
  if (newest) newest->add(memory_.as<char>(), bytes, true, "scratch memory");
}
Scratch::~Scratch() {
  if (newest) newest->remove(memory_.as<char>());
}

void refuse_index(const char* what, int64_t position, int64_t value, int64_t extent, const char* unless,
                  int64_t exception) {
  std::string rest = unless ? concat(" and not ", unless, " (", exception, ')') : "";
  fail(what, ' ', position, " is ", value, ", outside [0, ", extent, ')', rest);
}

void refuse_copy(size_t bytes, size_t offset, size_t of) {
  fail_as(ErrorKind::internal, "simulator: cudaMemcpyToSymbol of ", bytes, " bytes at byte ", offset,
          " of a variable of ", of);
}

void note_input(const void* begin, size_t bytes) {
  if (newest) newest->add(begin, bytes, false, "input");
}

}  // namespace shardgrad::sim
