// Judges every access to memory: in bounds, aligned, written before, ordered after what it depends on.

#include <algorithm>
#include <bit>
#include <cstring>

#include <shardgrad/core/memory_apart.h>
#include <shardgrad/core/poison.h>
#include <shardgrad/kernels/sim/machine.h>

namespace shardgrad::sim {
namespace {

const char* verb(Access how) { return how == Access::read ? "reads" : how == Access::write ? "writes" : "updates"; }

// True when these bytes hold the pattern that fresh and freed memory is filled with. Of 2 bytes the neighbours are
// asked too, since 16 bits may be there by right; of longer reads any word counts.
bool is_unwritten(const Region& region, uintptr_t address, size_t bytes) {
  constexpr uint64_t pattern = kUnwritten * 0x0001000100010001u;
  if (bytes == 2) {
    address &= ~uintptr_t(3);
    bytes = 4;
    if (!region.holds(address, bytes)) return false;
  }
  auto holds_pattern = [&]<class Word>(uintptr_t at, Word word) {
    std::memcpy(&word, reinterpret_cast<const void*>(at), sizeof(word));
    return word == Word(pattern);
  };
  if (bytes == 8) return holds_pattern(address, uint64_t());
  for (size_t i = 0; i + 4 <= bytes; i += 4)
    if (holds_pattern(address + i, uint32_t())) return true;
  return false;
}

}  // namespace

void Machine::access(uintptr_t address, size_t bytes, Access how, Code code, bool aligned) {
  if (stacks_.contains(address)) return;
  if (same_value_) check_same_value();
  Region* region = find(address, bytes, code);
  if (!region) outside(address, bytes, how, code);
  if (how != Access::read && !region->writable)
    fault({code, concat(verb(how), ' ', bytes, " bytes of ", region->what, ", which it may only read")});
  if (aligned && address % bytes != 0)
    fault({code, concat(verb(how), ' ', bytes, " bytes at an address that is not a multiple of ", bytes)});
  if (how != Access::write && region->kind == Region::Kind::global && is_unwritten(*region, address, bytes))
    fault({code, concat("reads ", bytes, " bytes of ", region->what, " at byte ", address - region->begin,
                        " that nobody has written")});
  if (!on_their_way_.empty() && how != Access::write)
    if (auto copy = on_their_way_.find(address & ~uintptr_t(15)); copy != on_their_way_.end())
      fault({code,
             concat(verb(how), ' ', bytes, " bytes of ", region->what, " that a copy begun at @ is on its way to"),
             copy->second});
  if (how == Access::atomic && region->kind == Region::Kind::global) publish_or_acquire();
  if (!region->cells) return;
  for (uintptr_t word = address & ~uintptr_t(3); word < address + bytes; word += 4) {
    unsigned begin = unsigned(word < address ? address - word : 0);
    unsigned end = unsigned(std::min<uintptr_t>(4, address + bytes - word));
    check_word(*region, word, ((1u << end) - 1) & ~((1u << begin) - 1), how, code);
  }
  if (same_value_ && same_value_->bytes == 0) {  // found in one of the words: watch all of them
    same_value_->address = address;
    same_value_->bytes = std::min(bytes, same_value_->old.size());
    std::memcpy(same_value_->old.data(), reinterpret_cast<void*>(address), same_value_->bytes);
  }
}

Region* Machine::find(uintptr_t address, size_t bytes, Code code) {
  Region*& recent = recent_[(address >> 8 ^ address / kApart) % recent_.size()];
  if (recent && recent->holds(address, bytes)) [[likely]]
    return recent;
  for (Region& region : regions_)
    if (region.holds(address, bytes)) return recent = &region;
  for (Region& part : program_)  // __constant__ and other data
    if (part.holds(address, bytes)) return &part;
  Region* variable = static_shared_.find(address);
  if (!variable) {
    program_[1] = program_[0];
    program_[0] = program_data(address);
    if (program_[0].holds(address, bytes)) return &program_[0];
  }
  bool mine = variable && variable->holds(address, bytes) && (!*variable->owner || variable->owner == kernel_base_);
  if (!mine) return nullptr;
  if (variable->launch != launch_) count_static(*variable, code);
  return recent = variable;
}

// A kernel has the shared variables of the functions that it calls, too. Of those that stand in no function, each
// counts for itself.
void Machine::count_static(Region& variable, Code code) {
  variable.launch = launch_;
  for (const char* function : functions_met_)
    if (std::strcmp(function, variable.function) == 0) return;
  functions_met_.push_back(variable.function);
  static_bytes_ += variable.function_bytes;
  if (static_bytes_ > kStaticShared)
    fault({code,
           concat("uses ", static_bytes_, " bytes of variables declared __shared__; a kernel has at most 48 KiB of ",
                  "them, and more only as dynamic_shared")});
  if (static_bytes_ + dynamic_.size() > kSharedOfBlock)
    fault({code, concat("uses ", static_bytes_, " bytes of variables declared __shared__ beside ", dynamic_.size(),
                        " of dynamic shared memory; a block has at most 227 KiB")});
}

void Machine::outside(uintptr_t address, size_t bytes, Access how, Code code) {
  const Region* nearest = static_shared_.find(address);
  if (nearest && *nearest->owner && nearest->owner != kernel_base_)
    fault({code, concat(verb(how), ' ', bytes, " bytes outside the kernel's own shared memory, in ", nearest->what,
                        " of ", nearest->owner)});
  for (const Region& region : regions_) {
    bool near = region.kind != Region::Kind::parameters && address >= region.begin && address < region.end + 4096;
    if (near && (!nearest || region.end > nearest->end)) nearest = &region;
  }
  if (nearest)
    fault({code, concat(verb(how), ' ', bytes, " bytes at byte ", address - nearest->begin, " of ", nearest->what,
                        ", which has ", nearest->end - nearest->begin)});
  fault({code, concat(verb(how), ' ', bytes, " bytes at ", reinterpret_cast<void*>(address),
                      ", which belongs to no operand and no shared memory")});
}

void Machine::check_word(Region& region, uintptr_t word, unsigned mask, Access how, Code code) {
  Cell& cell = region.cell(word);
  bool shared = region.kind == Region::Kind::shared;
  uint32_t era = shared ? block_ : launch_;
  if (cell.era != era) {
    cell = {};
    cell.era = era;
  }
  if (shared && how != Access::write && (cell.written & mask) != mask)
    park({current_, &region, word, mask & ~unsigned(cell.written), how, code});
  if (how == Access::read) {
    if ((cell.write_mask & mask) && !ordered(cell.write)) fault(race(region, cell.write, "wrote", how, code));
    const Readers& r = cell.readers;  // once several warps have read, one more reader changes nothing
    if (r.other_warps && (cell.read_mask & mask) == mask && r.last.block == block_ && r.last.epoch == epoch_) return;
  }
  Stamp now{block_, epoch_, clock_of(current_), uint16_t(current_), how == Access::atomic, code};
  if (how == Access::read)
    note_read(cell, mask, now);
  else
    check_write(region, cell, word, mask, now);
}

// Somebody may be about to write what this thread reads: a missing barrier, and not a missing write.
void Machine::park(Parked read) {
  parked_.push_back(read);
  fibres_[size_t(current_)].state = Fibre::State::parked;
  leave();
  __builtin_unreachable();
}

void Machine::check_parked(uintptr_t word, unsigned mask, const Stamp& now) {
  for (const Parked& read : parked_)
    if (read.word == word && (read.mask & mask)) {
      set_fault(read.thread, race(*read.region, now, "wrote", read.how, read.code));
      leave();
    }
}

void Machine::check_write(Region& region, Cell& cell, uintptr_t word, unsigned mask, const Stamp& now) {
  if (!parked_.empty()) check_parked(word, mask, now);
  Access how = now.atomic ? Access::atomic : Access::write;
  if ((cell.write_mask & mask) && !(now.atomic && cell.write.atomic) && !ordered(cell.write)) {
    Fault fault_if_different = race(region, cell.write, "wrote", how, now.code);
    if (now.atomic || cell.write.atomic) fault(std::move(fault_if_different));
    same_value_.emplace(SameValue{word, 0, {}, std::move(fault_if_different)});
  }
  if ((cell.read_mask & mask) && !ordered(cell.readers, current_ % kWarp))
    fault(race(region, another(cell.readers), "read", how, now.code));
  bool same = cell.write.block == now.block && cell.write.epoch == now.epoch && cell.write.clock == now.clock &&
              cell.write.thread == now.thread && cell.write.atomic == now.atomic;
  cell.write_mask = uint8_t(same ? cell.write_mask | mask : mask);
  cell.written = uint8_t(cell.written | mask);
  cell.write = now;
  cell.read_mask = uint8_t(cell.read_mask & ~mask);
  if (!cell.read_mask) cell.readers = {};
}

void Machine::note_read(Cell& cell, unsigned mask, const Stamp& now) {
  Readers& r = cell.readers;
  bool none = cell.read_mask == 0;
  cell.read_mask = uint8_t(cell.read_mask | mask);
  int lane = now.thread % kWarp;
  if (!none && r.last.block == now.block && r.last.epoch == now.epoch) {
    if (r.last.thread / kWarp != now.thread / kWarp) {
      r.other_warps = true;
      return;
    }
    if (clocks_[now.thread / kWarp].block == block_)  // those that this read comes after need no watching
      for (int l = 0; l < kWarp; ++l)
        if (l == lane || clocks_[now.thread / kWarp].known[size_t(lane)][size_t(l)] >= r.clock) r.lanes &= ~(1u << l);
    r.clock = r.lanes ? std::min(r.clock, now.clock) : now.clock;
    r.lanes |= 1u << lane;
    r.last = now;
    return;
  }
  bool others = !none && r.last.block != now.block && !published(r.last);
  r = {now, 1u << lane, now.clock, false, others || (!none && r.other_blocks)};
}

uint32_t Machine::clock_of(int thread) const {
  const WarpClocks& clocks = clocks_[size_t(thread / kWarp)];
  return clocks.block == block_ ? clocks.known[size_t(thread % kWarp)][size_t(thread % kWarp)] : 1;
}

// True when the running thread comes after that access.
bool Machine::ordered(const Stamp& before) const {
  if (before.block != block_) return published(before);
  if (before.thread == current_ || before.epoch < epoch_) return true;
  if (before.thread / kWarp != current_ / kWarp) return false;
  const WarpClocks& clocks = clocks_[size_t(current_ / kWarp)];
  return clocks.block == block_ &&
         clocks.known[size_t(current_ % kWarp)][size_t(before.thread % kWarp)] >= before.clock;
}

bool Machine::ordered(const Readers& r, int lane) const {
  if (r.other_blocks) return false;
  if (r.last.block != block_) return published(r.last);
  if (r.last.epoch < epoch_) return true;
  if (r.other_warps || r.last.thread / kWarp != current_ / kWarp) return false;
  const WarpClocks& clocks = clocks_[size_t(current_ / kWarp)];
  for (int l = 0; l < kWarp; ++l) {
    if (!(r.lanes >> l & 1) || l == lane) continue;
    if (clocks.block != block_ || clocks.known[size_t(lane)][size_t(l)] < r.clock) return false;
  }
  return true;
}

// The last reader, or a lane of its warp that read too where that is the running thread itself.
Stamp Machine::another(const Readers& r) const {
  Stamp reader = r.last;
  unsigned others = r.lanes & ~(1u << current_ % kWarp);
  if (reader.block == block_ && reader.thread == current_ && others)
    reader.thread = uint16_t(current_ / kWarp * kWarp + std::countr_zero(others));
  return reader;
}

// __threadfence and an atomic publish what the thread has done and seen; a later block's atomic acquires it.
void Machine::publish_or_acquire() {
  if (acquired_.block != block_) acquired_ = {block_, epoch_, current_};
  if (!fibres_[size_t(current_)].fenced) return;
  Published& mine = published_[block_];
  mine.epoch = epoch_;
  mine.threads.set(size_t(current_));
}

bool Machine::published(const Stamp& before) const {
  if (acquired_.block != block_ || (acquired_.thread != current_ && acquired_.epoch == epoch_)) return false;
  auto found = published_.find(before.block);
  return found != published_.end() && (before.epoch < found->second.epoch || found->second.threads.test(before.thread));
}

Fault Machine::race(const Region& region, const Stamp& before, const char* did, Access how, Code code) const {
  std::string who = describe(before.thread);
  if (before.block != block_) who += " of an earlier block";
  return {code, concat(verb(how), ' ', region.what, " that ", who, ' ', did, " at @, with nothing to order the two"),
          before.code};
}

// Threads that all write the same value into one place are no race that could be seen.
void Machine::check_same_value() {
  if (!same_value_) return;
  SameValue second = std::move(*same_value_);
  same_value_.reset();
  if (std::memcmp(reinterpret_cast<void*>(second.address), second.old.data(), second.bytes) != 0)
    fault(std::move(second.fault));
}

// A copy may take place at any time until it is waited for: both ends of that time count as its write, and in between
// nobody may read what it brings.
void Machine::copy_later(const Copy& copy) {
  access(reinterpret_cast<uintptr_t>(copy.from), copy.bytes, Access::read, copy.code, true);
  access(reinterpret_cast<uintptr_t>(copy.to), copy.bytes, Access::write, copy.code, true);
  on_their_way_[reinterpret_cast<uintptr_t>(copy.to)] = copy.code;
  Fibre& fibre = fibres_[size_t(current_)];
  fibre.copies.push_back(copy);
  fibre.copies.back().group = fibre.copy_groups;
}

void Machine::await_copies(int still_open) {
  Fibre& fibre = fibres_[size_t(current_)];
  std::erase_if(fibre.copies, [&](const Copy& copy) {
    if (copy.group >= fibre.copy_groups - still_open) return false;
    on_their_way_.erase(reinterpret_cast<uintptr_t>(copy.to));
    access(reinterpret_cast<uintptr_t>(copy.to), copy.bytes, Access::write, copy.code, true);
    std::memcpy(copy.to, copy.from, copy.bytes);
    return true;
  });
}

}  // namespace shardgrad::sim
