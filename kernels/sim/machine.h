#pragma once
// The simulated GPU of one host thread: runs blocks one after another and a block's threads as fibres, and watches what
// they do. Accesses come from hooks.cpp; barriers and warp operations from the functions of warp.h.

#include <array>
#include <bitset>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <shardgrad/core/error.h>
#include <shardgrad/kernels/sim/fibre.h>
#include <shardgrad/kernels/sim/launch.h>
#include <shardgrad/kernels/sim/places.h>
#include <shardgrad/kernels/sim/shadow.h>
#include <shardgrad/kernels/sim/static_shared.h>
#include <shardgrad/kernels/sim/warp.h>

namespace shardgrad::sim {

inline constexpr int kWarp = 32, kMaxThreads = 1024;
inline constexpr size_t kSharedOfBlock = 227 * 1024, kStaticShared = 48 * 1024;

enum class Access : uint8_t { read, write, atomic };
enum class WarpOp : uint8_t { synchronise, shuffle, reduce, match, active };

/// Bytes on their way to shared memory.
struct Copy {
  unsigned char* to;
  const unsigned char* from;
  size_t bytes;
  Code code;
  int group;
};

/// One simulated thread.
struct Fibre {
  enum class State : uint8_t { fresh, ready, at_barrier, at_warp_op, parked, done };
  State state = State::fresh;
  int stack = -1;
  uint3 index{};  // within the block
  Point point;
  Code waits_at = 0;
  bool passed = false;  // what it brought to a barrier or a vote
  WarpOp op{};
  unsigned mask = 0;
  uint64_t value = 0, result = 0;  // what it brought to a warp operation, and what it gets
  int source = 0;                  // the lane it wants to read, or the Reduction
  bool fenced = false;
  std::vector<Copy> copies;
  int copy_groups = 0;  // closed ones
};

/// The index with this number in a box, x fastest.
inline uint3 index_in(dim3 box, uint32_t number) {
  return {number % box.x, number / box.x % box.y, number / box.x / box.y};
}

/// What a kernel did wrong. In `text`, '@' stands for the place `other`.
struct Fault {
  Code code = 0;
  std::string text;
  Code other = 0;
};

/// A read of shared memory where nobody had written. Its thread never goes on.
struct Parked {
  int thread;
  const Region* region;
  uintptr_t word;
  unsigned mask;
  Access how;
  Code code;
};

/// What the lanes of a warp know of each other's progress; see shadow.h.
struct WarpClocks {
  uint32_t block = 0;  // the block they belong to; else all are at the beginning
  std::array<std::array<uint32_t, kWarp>, kWarp> known;
};

// Hidden: every access of a kernel comes through here, and calls within the library take no detour.
class [[gnu::visibility("hidden")]] Machine {
 public:
  Machine();
  /// The calling thread's machine while one of its simulated threads runs, else null.
  static Machine* running() { return running_; }
  /// The calling thread's machine.
  static Machine& mine();

  void run(const KernelRecord& kernel, const Config& config, void (*body)(const void*), const void* data, size_t bytes);
  void access(uintptr_t address, size_t bytes, Access how, Code code, bool aligned);
  int barrier(bool vote, Code code);
  uint64_t warp_op(WarpOp op, unsigned mask, uint64_t value, int source, Code code);
  void copy_later(const Copy& copy);
  void close_copies() { ++fibres_[size_t(current_)].copy_groups; }
  void await_copies(int still_open);
  void fence() { fibres_[size_t(current_)].fenced = true; }
  /// Ends the launch with a fault of the running thread.
  [[noreturn]] void fault(Fault fault);
  /// The kernel that this thread launched last in the operation that runs; empty where there is none.
  std::string last_kernel() const { return kernel_ ? kernel_->name() : ""; }
  void begin_operation() { kernel_ = nullptr; }
  Places& places() { return places_; }
  void* dynamic_shared() { return dynamic_.data(); }
  int lane() const { return current_ % kWarp; }

 private:
  // machine.cpp: the order in which threads run
  void check_config(const Config& config) const;
  void make_regions(const Config& config, const void* data, size_t bytes);
  void run_block(uint32_t index);
  bool run_warp(int first);
  int next_of_warp(int first, int begin) const;
  void choose(int thread);
  void enter(int thread);
  void leave();
  static void fibre_main();
  void finish_thread();
  void set_fault(int thread, Fault fault);
  std::string describe(int thread) const;
  std::string report() const;
  // meet.cpp: barriers and warp operations
  void complete_barrier();
  bool complete_warp_op(int first, unsigned mask);
  bool complete_active(int first);
  void merge_clocks(int first, unsigned mask);
  void report_stuck();
  std::string where(int thread) const;
  // access.cpp: memory
  Region* find(uintptr_t address, size_t bytes, Code code);
  void count_static(Region & variable, Code code);
  [[noreturn]] void outside(uintptr_t address, size_t bytes, Access how, Code code);
  void check_word(Region & region, uintptr_t word, unsigned mask, Access how, Code code);
  void check_write(Region & region, Cell & cell, uintptr_t word, unsigned mask, const Stamp& now);
  void check_written(const Region& region, uintptr_t address, size_t bytes, Code code);
  [[noreturn]] void park(Parked read);
  void check_parked(uintptr_t word, unsigned mask, const Stamp& now);
  void note_read(Cell & cell, unsigned mask, const Stamp& now);
  bool ordered(const Stamp& before) const;
  bool ordered(const Readers& readers, int lane) const;
  Stamp another(const Readers& readers) const;
  uint32_t clock_of(int thread) const;
  bool published(const Stamp& before) const;
  void publish_or_acquire();
  Fault race(const Region& region, const Stamp& before, const char* did, Access how, Code code) const;
  void check_same_value();
  void check_locals();
  void check_locals(const Region& region);

  struct Published {
    uint32_t epoch = 0;
    std::bitset<kMaxThreads> threads;
  };
  struct Acquired {
    uint32_t block = 0, epoch = 0;
    int thread = 0;
  };
  struct SameValue {  // a second write of the same word is forgiven when it writes what is there
    uintptr_t address = 0;
    size_t bytes = 0;
    std::array<unsigned char, 16> old;
    Fault fault;
  };

  [[gnu::tls_model("initial-exec")]] static __thread Machine* running_;

  Stacks stacks_{kMaxThreads};
  std::vector<int> free_stacks_;
  std::vector<Fibre> fibres_;
  std::array<WarpClocks, kMaxThreads / kWarp> clocks_;
  Point scheduler_;
  Places places_;
  StaticShared static_shared_;

  // the launch
  const KernelRecord* kernel_ = nullptr;
  std::string kernel_base_;
  void (*body_)(const void*) = nullptr;
  const void* data_ = nullptr;
  dim3 grid_, block_shape_;
  std::vector<Region> regions_;
  std::array<Region, 2> program_;     // those parts of the program's own data which were found last
  std::array<Region*, 16> recent_{};  // those that accesses near an address fell into
  std::vector<unsigned char> dynamic_;
  std::vector<Cell> dynamic_cells_, global_cells_;
  uint32_t launch_ = 0, first_block_ = 0;
  std::vector<const char*> functions_met_;  // those whose shared variables the launch has touched
  size_t static_bytes_ = 0;                 // of all of their variables
  std::unordered_map<uint32_t, Published> published_;
  Acquired acquired_;

  // the block
  uint32_t block_ = 0, epoch_ = 0;
  int threads_ = 0, done_ = 0, current_ = -1, passed_ = 0;
  std::unordered_map<uintptr_t, Code> on_their_way_;  // destinations of copies, and who began each
  std::optional<SameValue> same_value_;
  std::vector<Parked> parked_;

  bool faulted_ = false;
  Fault fault_;
  std::string fault_where_;
  std::exception_ptr exception_;
};

}  // namespace shardgrad::sim
