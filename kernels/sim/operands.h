#pragma once
// The global memory that kernels may touch: the operands of the operation that runs, and its scratch memory. An access
// elsewhere is reported, and so is a write to an input, even where other tensors happen to lie.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <shardgrad/core/view.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::sim {

/// A range of global memory.
struct Range {
  uintptr_t begin, end;
  bool writable;
  const char* what;  ///< "input", "output" or "scratch memory"
  DType dtype;       ///< of its elements; u8 where that is not known
};

/// Declares memory to the simulator for a scope of the calling thread; the newest scope counts.
class Operands {
 public:
  Operands();
  ~Operands();
  Operands(const Operands&) = delete;
  void note(const View& view) { add(view.data, view.bytes(), false, "input", view.dtype); }
  void note(const OutView& view);
  template <class T> void note(const T& other) {  // a list of operands, or a scalar
    if constexpr (OperandList<T>)
      for (const auto& each : *other) each.for_each_operand([&](const auto& one) { this->note(one); });
  }
  void add(const void* begin, size_t bytes, bool writable, const char* what, DType dtype = DType::u8);
  void remove(const void* begin);
  /// Throws Error(internal) when an output that was all unwritten is written in part, by the operation of this name.
  void check_written(const char* operation) const;
  void excuse(const OutView& view) {
    std::erase_if(fresh_, [&](const OutView& other) { return other.data == view.data; });
  }
  const std::vector<Range>& ranges() const { return ranges_; }
  /// The calling thread's newest, or null.
  static Operands* current();

 private:
  std::vector<Range> ranges_;
  std::vector<OutView> fresh_;  // those that nobody had written
  Operands* outer_;
};

/// Memory for the length of an operation. Its elements count as unwritten at first.
class Scratch {
 public:
  Scratch(const Launch& how, size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  template <class T> T* as() const { return memory_.as<T>(); }

 private:
  Workspace memory_;
};

/// The running operation leaves the rest of this output as it was, by design.
void writes_a_part_of(const OutView& view);

/// Memory that a kernel reads and that is not an operand's.
void note_input(const void* begin, size_t bytes);

[[noreturn]] void refuse_index(const char* what, int64_t position, int64_t value, int64_t extent, const char* unless,
                               int64_t exception);

}  // namespace shardgrad::sim
