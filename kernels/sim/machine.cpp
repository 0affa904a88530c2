#include <shardgrad/kernels/sim/machine.h>

#include <algorithm>
#include <utility>

#include <shardgrad/core/float_mode.h>
#include <shardgrad/kernels/sim/operands.h>

// CUDA's built-in variables; kernels see them as constants (language.h).
__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace shardgrad::sim {
namespace {

constinit const KernelRecord* first_record = nullptr;

uint64_t volume(dim3 d) { return uint64_t(d.x) * d.y * d.z; }

std::string text_of(uint3 index) { return concat('(', index.x, ", ", index.y, ", ", index.z, ')'); }

}  // namespace

// The bytes before a function are one-byte instructions that do nothing.
static int bytes_before(const void* function, std::span<const char* const> bounded) {
  const char* entry = static_cast<const char*>(function);
  for (const char* begin : bounded)
    if (begin < entry && entry - begin <= kMaxThreads && std::all_of(begin, entry, [](char c) { return c == '\x90'; }))
      return int(entry - begin);
  return 0;
}

KernelRecord::KernelRecord(const char* pretty, const void* entry, std::span<const char* const> bounded,
                           uint64_t unset_local)
    : name_(kernel_name(pretty)),
      most_threads_(bytes_before(entry, bounded)),
      unset_local_(unset_local),
      next_(first_record) {
  first_record = this;
}
const KernelRecord* KernelRecord::first() { return first_record; }

__thread Machine* Machine::running_ = nullptr;

Machine::Machine() : fibres_(kMaxThreads) {
  for (int i = kMaxThreads; i-- > 0;) free_stacks_.push_back(i);
}
Machine& Machine::mine() {
  static thread_local std::unique_ptr<Machine> machine;
  if (!machine) machine = std::make_unique<Machine>();
  return *machine;
}

void run_grid(KernelRecord& kernel, const Config& config, void (*body)(const void*), const void* data, size_t bytes) {
  if (volume(config.grid) == 0) return;
  kernel.count();
  Machine::mine().run(kernel, config, body, data, bytes);
}

void Machine::check_config(const Config& c) const {
  uint64_t threads = volume(c.block);
  int most_threads = kernel_->most_threads();
  SG_CHECK(threads >= 1 && threads <= kMaxThreads && c.block.z <= 64, kernel_->name(), ": a block of ", c.block.x,
           " x ", c.block.y, " x ", c.block.z, " threads is not possible; a GPU takes up to 1024, 64 along z");
  SG_CHECK(most_threads == 0 || threads <= uint64_t(most_threads), kernel_->name(), ": a block of ", c.block.x, " x ",
           c.block.y, " x ", c.block.z, " threads; the kernel's __launch_bounds__ allow ", most_threads);
  SG_CHECK(c.grid.x < (1u << 31) && c.grid.y < 65536 && c.grid.z < 65536, kernel_->name(), ": a grid of ", c.grid.x,
           " x ", c.grid.y, " x ", c.grid.z,
           " blocks is not possible; a GPU takes up to 2^31 - 1 along x, 65535 along y, z");
  SG_CHECK(c.shared <= kSharedOfBlock, kernel_->name(), ": ", c.shared,
           " bytes of shared memory; a block has at most 227 KiB");
}

// Writable ranges first: memory that is input and output counts as output.
void Machine::make_regions(const Config& config, const void* data, size_t bytes) {
  regions_.clear();
  recent_ = {};
  program_ = {};
  dynamic_.resize(config.shared);
  dynamic_cells_.resize(config.shared / 4 + 1);
  auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  if (config.shared > 0)
    regions_.push_back({address(dynamic_.data()), address(dynamic_.data()) + config.shared, Region::Kind::shared, true,
                        dynamic_cells_.data(), "the dynamic shared memory", ""});
  size_t cells = 0;
  const std::vector<Range> none;
  const std::vector<Range>& ranges = Operands::current() ? Operands::current()->ranges() : none;
  for (const Range& range : ranges)
    if (range.writable) cells += cells_for(range.begin, range.end);
  if (global_cells_.size() < cells) global_cells_.resize(cells);
  cells = 0;
  for (bool writable : {true, false})
    for (const Range& range : ranges) {
      if (range.writable != writable) continue;
      Cell* own = writable ? global_cells_.data() + cells : nullptr;
      regions_.push_back({range.begin, range.end, Region::Kind::global, writable, own, range.what, ""});
      regions_.back().dtype = range.dtype;
      if (writable) cells += cells_for(range.begin, range.end);
    }
  auto readable = [&](const void* at, size_t size) {
    regions_.push_back(
        {address(at), address(at) + size, Region::Kind::parameters, false, nullptr, "the arguments", ""});
  };
  readable(data, bytes);
  for (const uint3* builtin : {&threadIdx, &blockIdx, &blockDim, &gridDim}) readable(builtin, sizeof(uint3));
}

void Machine::run(const KernelRecord& kernel, const Config& config, void (*body)(const void*), const void* data,
                  size_t bytes) {
  SG_CHECK(!running_, kernel.name(), ": a kernel cannot launch a kernel");
  KeepSubnormals as_a_gpu_does;
  kernel_ = &kernel;
  kernel_base_ = base_name(kernel.name());
  check_config(config);
  make_regions(config, data, bytes);
  body_ = body;
  data_ = data;
  grid_ = config.grid;
  block_shape_ = config.block;
  gridDim = {grid_.x, grid_.y, grid_.z};
  blockDim = {block_shape_.x, block_shape_.y, block_shape_.z};
  threads_ = int(volume(config.block));
  for (int t = 0; t < threads_; ++t) fibres_[size_t(t)].index = index_in(block_shape_, uint32_t(t));
  ++launch_;
  first_block_ = block_ + 1;
  published_.clear();
  functions_met_.clear();
  static_bytes_ = 0;
  faulted_ = false;
  uint32_t blocks = uint32_t(volume(config.grid));
  for (uint32_t b = 0; b < blocks && !faulted_; ++b) run_block(b);
  if (!faulted_) check_locals();
  if (!faulted_) return;
  free_stacks_.clear();  // the threads that were on the others will never go on
  for (int i = kMaxThreads; i-- > 0;) free_stacks_.push_back(i);
  if (exception_) std::rethrow_exception(std::exchange(exception_, nullptr));
  fail_as(ErrorKind::internal, report());
}

void Machine::run_block(uint32_t index) {
  blockIdx = index_in(grid_, index);
  ++block_;
  epoch_ = 0;
  done_ = 0;
  acquired_ = {};
  on_their_way_.clear();
  parked_.clear();
  for (int t = 0; t < threads_; ++t) {
    fibres_[size_t(t)].state = Fibre::State::fresh;
    fibres_[size_t(t)].fenced = false;
    fibres_[size_t(t)].copies.clear();
    fibres_[size_t(t)].copy_groups = 0;
  }
  while (done_ < threads_ && !faulted_) {
    bool moved = false;
    for (int first = 0; first < threads_ && !faulted_; first += kWarp) moved |= run_warp(first);
    if (!moved && !faulted_) complete_barrier();
  }
}

// Runs the lanes of a warp until all of them wait or are done.
bool Machine::run_warp(int first) {
  bool moved = false;
  for (bool again = true; again && !faulted_;) {
    again = false;
    for (int t = next_of_warp(first, first); t >= 0 && !faulted_; t = next_of_warp(first, current_ + 1)) {
      enter(t);
      again = moved = true;
    }
    if (!again && !faulted_) again = complete_active(first);
  }
  return moved;
}

// The first thread from `begin` on that can run, of the warp that begins with `first`; -1 if there is none.
int Machine::next_of_warp(int first, int begin) const {
  for (int t = begin; t < std::min(first + kWarp, threads_); ++t)
    if (auto state = fibres_[size_t(t)].state; state == Fibre::State::fresh || state == Fibre::State::ready) return t;
  return -1;
}

void Machine::choose(int thread) {
  Fibre& fibre = fibres_[size_t(thread)];
  if (fibre.state == Fibre::State::fresh) {
    fibre.stack = free_stacks_.back();
    free_stacks_.pop_back();
    prepare(fibre.point, stacks_.begin(fibre.stack), Stacks::kBytes, fibre_main);
  }
  fibre.state = Fibre::State::ready;
  current_ = thread;
  threadIdx = fibre.index;
}

// Comes back when a lane has no neighbour to go on with.
void Machine::enter(int thread) {
  choose(thread);
  running_ = this;
  switch_to(scheduler_, fibres_[size_t(thread)].point);
  running_ = nullptr;
  if (const Fibre& last = fibres_[size_t(current_)]; last.state == Fibre::State::done)
    free_stacks_.push_back(last.stack);
}

// To the next lane of the warp, without a detour; a stack that is left for ever is the scheduler's to take.
void Machine::leave() {
  Fibre& fibre = fibres_[size_t(current_)];
  int next = faulted_ || fibre.state == Fibre::State::done ? -1 : next_of_warp(current_ / kWarp * kWarp, current_ + 1);
  if (next >= 0) choose(next);
  switch_to(fibre.point, next < 0 ? scheduler_ : fibres_[size_t(next)].point);
}

void Machine::fibre_main() {
  Machine& machine = *running_;
  try {
    machine.body_(machine.data_);
    machine.check_same_value();
  } catch (...) {
    machine.exception_ = std::current_exception();
    machine.faulted_ = true;
  }
  machine.finish_thread();
}

// Never returns: nobody enters a thread that is done.
void Machine::finish_thread() {
  if (const auto& copies = fibres_[size_t(current_)].copies; !copies.empty())
    set_fault(current_, {copies.front().code, "ends before it has waited for a copy that it began"});
  fibres_[size_t(current_)].state = Fibre::State::done;
  ++done_;
  int first = current_ / kWarp * kWarp;
  for (int t = first; t < std::min(first + kWarp, threads_); ++t)
    if (fibres_[size_t(t)].state == Fibre::State::at_warp_op) complete_warp_op(first, fibres_[size_t(t)].mask);
  leave();
}

// A breakpoint here stops at the first fault of any kernel, in the thread that made it.
void Machine::set_fault(int thread, Fault fault) {
  if (faulted_) return;
  faulted_ = true;
  fault_ = std::move(fault);
  fault_where_ = concat(kernel_->name(), ", block ", text_of(blockIdx), ", ", describe(thread));
}

void Machine::fault(Fault fault) {
  set_fault(current_, std::move(fault));
  leave();
  __builtin_unreachable();
}

std::string Machine::describe(int thread) const {
  return concat("thread ", text_of(index_in(block_shape_, uint32_t(thread))));
}

std::string Machine::report() const {
  std::string text = fault_.text;
  if (size_t at = text.find('@'); at != std::string::npos) text.replace(at, 1, places_.describe(fault_.other));
  return concat("simulator: ", fault_where_, ": ", text, ", at ", places_.describe(fault_.code));
}

}  // namespace shardgrad::sim
