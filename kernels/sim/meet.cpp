// Barriers, shuffles and votes: a thread waits until those it meets have come, or until nobody can move any more.

#include <algorithm>
#include <bit>

#include <shardgrad/kernels/sim/machine.h>

namespace shardgrad::sim {

int Machine::barrier(bool vote, Code code) {
  check_same_value();
  Fibre& fibre = fibres_[size_t(current_)];
  fibre.state = Fibre::State::at_barrier;
  fibre.passed = vote;
  fibre.waits_at = code;
  leave();
  return passed_;
}

// Called when no thread can move: either all wait at one barrier, or something is wrong.
void Machine::complete_barrier() {
  if (!parked_.empty()) {
    const Parked& read = parked_.front();
    const char* did = read.how == Access::read ? "reads " : "updates ";
    return set_fault(read.thread,
                     {read.code, concat(did, read.region->what, " where nobody in this block has written")});
  }
  int here = -1, missing = -1, count = 0;
  for (int t = 0; t < threads_; ++t) {
    const Fibre& fibre = fibres_[size_t(t)];
    if (fibre.state == Fibre::State::at_warp_op) return report_stuck();
    if (fibre.state == Fibre::State::done || (here >= 0 && fibre.waits_at != fibres_[size_t(here)].waits_at))
      missing = missing < 0 ? t : missing;
    else
      here = here < 0 ? t : here;
    count += fibre.state == Fibre::State::at_barrier && fibre.passed;
  }
  if (missing >= 0) {
    Fault fault{fibres_[size_t(here)].waits_at,
                concat("waits at a barrier that not every thread of the block reaches: ", where(missing)),
                fibres_[size_t(missing)].waits_at};
    return set_fault(here, std::move(fault));
  }
  passed_ = count;
  ++epoch_;
  for (int t = 0; t < threads_; ++t) fibres_[size_t(t)].state = Fibre::State::ready;
}

// Where a thread is instead of where it is waited for.
std::string Machine::where(int thread) const {
  switch (fibres_[size_t(thread)].state) {
    case Fibre::State::done:
      return describe(thread) + " has returned";
    case Fibre::State::at_barrier:
      return describe(thread) + " waits at the barrier at @";
    default:
      return concat(describe(thread), " is in a warp operation with mask 0x", std::hex, fibres_[size_t(thread)].mask,
                    " at @");
  }
}

uint64_t Machine::warp_op(WarpOp op, unsigned mask, uint64_t value, int source, Code code) {
  check_same_value();
  Fibre& fibre = fibres_[size_t(current_)];
  int lane = current_ % kWarp, first = current_ - lane;
  if (!(mask >> lane & 1))
    fault({code, concat("calls a warp operation with mask 0x", std::hex, mask, std::dec,
                        ", which leaves out its own lane ", lane)});
  fibre.state = Fibre::State::at_warp_op;
  fibre.waits_at = code;
  fibre.op = op;
  fibre.mask = mask;
  fibre.value = value;
  fibre.source = source;
  if (op == WarpOp::active || !complete_warp_op(first, mask) || faulted_) leave();
  return fibre.result;
}

static uint64_t combined(const Fibre* lanes, unsigned here, Reduction how) {
  auto all = uint32_t(lanes[std::countr_zero(here)].value);
  for (unsigned rest = here & (here - 1); rest; rest &= rest - 1) {
    auto value = uint32_t(lanes[std::countr_zero(rest)].value);
    switch (how) {
      case Reduction::sum:
        all += value;
        break;
      case Reduction::least:
        all = std::min(all, value);
        break;
      case Reduction::most:
        all = std::max(all, value);
        break;
      case Reduction::least_signed:
        all = uint32_t(std::min(int32_t(all), int32_t(value)));
        break;
      case Reduction::most_signed:
        all = uint32_t(std::max(int32_t(all), int32_t(value)));
        break;
      case Reduction::bits_of_all:
        all &= value;
        break;
      case Reduction::bits_of_any:
        all |= value;
        break;
      case Reduction::odd_bits:
        all ^= value;
    }
  }
  return all;
}

static uint64_t equal_lanes(const Fibre* lanes, unsigned here, uint64_t value) {
  unsigned equal = 0;
  for (unsigned rest = here; rest; rest &= rest - 1)
    if (int lane = std::countr_zero(rest); lanes[lane].value == value) equal |= 1u << lane;
  return equal;
}

// True when two lanes of one mask are in one operation. Lanes may meet in different __syncwarps, but not in different
// shuffles or votes, nor in different reductions of one line.
static bool meets(const Fibre& a, const Fibre& b) {
  if (a.op != b.op || (a.op == WarpOp::reduce && a.source != b.source)) return false;
  return a.op == WarpOp::synchronise || a.waits_at == b.waits_at;
}

// Completes the operation of the lanes in mask if all of them have come. Lanes that have returned are not waited for.
// Lanes run in their order, so the last of them is asked first.
bool Machine::complete_warp_op(int first, unsigned mask) {
  Fibre* lanes = &fibres_[size_t(first)];
  unsigned here = 0;
  const Fibre* some = nullptr;
  for (int lane = std::min(kWarp, threads_ - first); lane-- > 0;) {
    const Fibre& fibre = lanes[lane];
    if (!(mask >> lane & 1) || fibre.state == Fibre::State::done) continue;
    if (fibre.state != Fibre::State::at_warp_op || fibre.mask != mask || (some && !meets(fibre, *some))) return false;
    some = &fibre;
    here |= 1u << lane;
  }
  if (!some || some->op == WarpOp::active) return false;
  WarpOp op = some->op;
  uint64_t of_all = op == WarpOp::reduce ? combined(lanes, here, Reduction(some->source)) : 0;
  for (unsigned rest = here; rest; rest &= rest - 1) {
    int lane = std::countr_zero(rest);
    Fibre& fibre = lanes[lane];
    if (op == WarpOp::shuffle && !(here >> fibre.source & 1)) {
      set_fault(first + lane, {fibre.waits_at, concat("reads lane ", fibre.source, " in a shuffle with mask 0x",
                                                      std::hex, mask, ", but that lane does not take part")});
      return true;
    }
    fibre.result = op == WarpOp::shuffle ? lanes[fibre.source].value
                   : op == WarpOp::match ? equal_lanes(lanes, here, fibre.value)
                                         : of_all;
    fibre.state = Fibre::State::ready;
  }
  if (op == WarpOp::synchronise) merge_clocks(first, mask);
  return true;
}

// Called when no lane of the warp can go on: those that ask at one place who is there are the answer.
bool Machine::complete_active(int first) {
  Fibre* lanes = &fibres_[size_t(first)];
  bool any = false;
  for (int lane = 0; lane < std::min(kWarp, threads_ - first); ++lane) {
    if (lanes[lane].state != Fibre::State::at_warp_op || lanes[lane].op != WarpOp::active) continue;
    unsigned mask = 0;
    for (int peer = lane; peer < std::min(kWarp, threads_ - first); ++peer)
      if (lanes[peer].state == Fibre::State::at_warp_op && meets(lanes[lane], lanes[peer])) mask |= 1u << peer;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
      lanes[std::countr_zero(rest)].result = mask;
      lanes[std::countr_zero(rest)].state = Fibre::State::ready;
    }
    any = true;
  }
  return any;
}

void Machine::merge_clocks(int first, unsigned mask) {
  WarpClocks& clocks = clocks_[size_t(first / kWarp)];
  if (clocks.block != block_) {
    clocks.block = block_;
    for (size_t i = 0; i < kWarp; ++i)
      for (size_t j = 0; j < kWarp; ++j) clocks.known[i][j] = i == j;
  }
  std::array<uint32_t, kWarp> merged{};
  for (size_t lane = 0; lane < kWarp; ++lane)
    if (mask >> lane & 1)
      for (size_t i = 0; i < kWarp; ++i) merged[i] = std::max(merged[i], clocks.known[lane][i]);
  for (size_t lane = 0; lane < kWarp; ++lane)
    if (mask >> lane & 1) {
      clocks.known[lane] = merged;
      ++clocks.known[lane][lane];
    }
}

void Machine::report_stuck() {
  int t = 0;
  while (fibres_[size_t(t)].state != Fibre::State::at_warp_op) ++t;
  const Fibre& fibre = fibres_[size_t(t)];
  int first = t / kWarp * kWarp, other = t;
  for (int lane = 0; lane < kWarp && first + lane < threads_; ++lane) {
    const Fibre& peer = fibres_[size_t(first + lane)];
    if (!(fibre.mask >> lane & 1) || peer.state == Fibre::State::done) continue;
    if (peer.state != Fibre::State::at_warp_op || peer.mask != fibre.mask || !meets(fibre, peer)) other = first + lane;
  }
  set_fault(t, {fibre.waits_at,
                concat("waits in a warp operation with mask 0x", std::hex, fibre.mask, std::dec,
                       " for lanes that do not come: ", where(other)),
                fibres_[size_t(other)].waits_at});
}

// --- what kernels call (warp.h) ------------------------------------------------------------------------------------

static Machine& machine(const SourceLine& here) {
  Machine* running = Machine::running();
  SG_CHECK(running, here.file, ":", here.line, ": a kernel's function was called outside a launch");
  return *running;
}

int barrier(bool vote, const SourceLine& here) {
  Machine& m = machine(here);
  return m.barrier(vote, m.places().code_of(here));
}
void sync_warp(unsigned mask, const SourceLine& here) {
  Machine& m = machine(here);
  m.warp_op(WarpOp::synchronise, mask, 0, 0, m.places().code_of(here));
}
unsigned vote(unsigned mask, bool vote, const SourceLine& here) {
  Machine& m = machine(here);
  uint64_t bit = vote ? uint64_t(1) << m.lane() : 0;
  return unsigned(m.warp_op(WarpOp::reduce, mask, bit, int(Reduction::bits_of_any), m.places().code_of(here)));
}
unsigned reduce(unsigned mask, unsigned value, Reduction how, const SourceLine& here) {
  Machine& m = machine(here);
  return unsigned(m.warp_op(WarpOp::reduce, mask, value, int(how), m.places().code_of(here)));
}
unsigned lanes_with(unsigned mask, uint64_t bits, const SourceLine& here) {
  Machine& m = machine(here);
  return unsigned(m.warp_op(WarpOp::match, mask, bits, 0, m.places().code_of(here)));
}
unsigned active_lanes(const SourceLine& here) {
  Machine& m = machine(here);
  return unsigned(m.warp_op(WarpOp::active, 1u << m.lane(), 0, 0, m.places().code_of(here)));
}
void fence() {
  if (Machine* running = Machine::running()) running->fence();
}

// As CUDA defines it: groups of `width` lanes; a lane outside the group gives the own value back.
static int source_lane(Shuffle how, int lane, int operand, int width) {
  int begin = lane & ~(width - 1), within = lane & (width - 1);
  switch (how) {
    case Shuffle::index:
      return begin + (operand & (width - 1));
    case Shuffle::up:
      return within < operand ? lane : lane - operand;
    case Shuffle::down:
      return within + operand >= width ? lane : lane + operand;
    default:
      return (lane ^ operand) >= begin + width ? lane : lane ^ operand;
  }
}

uint64_t shuffle_bits(unsigned mask, uint64_t bits, Shuffle how, int operand, int width, const SourceLine& here) {
  Machine& m = machine(here);
  return m.warp_op(WarpOp::shuffle, mask, bits, source_lane(how, m.lane(), operand, width), m.places().code_of(here));
}

void note_atomic(const void* at, size_t bytes, const SourceLine& here) {
  Machine& m = machine(here);
  m.access(reinterpret_cast<uintptr_t>(at), bytes, Access::atomic, m.places().code_of(here), true);
}

void note_access(const void* at, size_t bytes, bool write, const SourceLine& here) {
  Machine& m = machine(here);
  for (size_t begin = 0; begin < bytes; begin += 16)
    m.access(reinterpret_cast<uintptr_t>(at) + begin, std::min<size_t>(bytes - begin, 16),
             write ? Access::write : Access::read, m.places().code_of(here), true);
}

void* dynamic_shared_memory() { return Machine::running()->dynamic_shared(); }

}  // namespace shardgrad::sim
