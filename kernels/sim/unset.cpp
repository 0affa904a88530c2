// What stands in outputs when a kernel or an operation has ended, and nobody has computed.

#include <algorithm>
#include <cstring>

#include <shardgrad/core/poison.h>
#include <shardgrad/kernels/sim/machine.h>
#include <shardgrad/kernels/sim/operands.h>

extern __thread uint3 blockIdx;

namespace shardgrad::sim {
namespace {

// 16 bits may be there by right: two neighbours tell.
size_t size_of_check(DType dtype) { return std::max<size_t>(size_of(dtype), 4); }

// gcc's pattern (kUnsetLocal) is so large a number that a sum with others is still this one; half of it, or a mean, has
// the same fraction. clang's is no number: its bits are all set, while those of a GPU's own NaN have no sign. Integers
// hold gcc's by right: -16843010.
constexpr uint64_t kHalvings = 12;

bool is_unset_local(DType dtype, const char* at, uint64_t pattern) {
  size_t bytes = size_of_check(dtype);
  uint64_t bits = 0, own = pattern >> (64 - 8 * bytes);
  std::memcpy(&bits, at, bytes);
  if (~pattern == 0) return bits == own;
  if (dtype == DType::bf16 && bits == 0xfefffeff) return true;  // rounded
  if (dtype != DType::f32 && dtype != DType::f64) return bits == own;
  int fraction = dtype == DType::f32 ? 23 : 52;
  bits |= uint64_t(1) << (8 * bytes - 1);
  bool same_fraction = (bits ^ own) << (64 - fraction) == 0;
  return same_fraction && bits <= own && (own >> fraction) - (bits >> fraction) <= kHalvings;
}

template <class Word> Word word_at(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

bool all_unwritten(const char* at, const char* end) {
  if (end - at < 2) return false;
  for (at += reinterpret_cast<uintptr_t>(at) % 2; end - at >= 2; at += 2)
    if (word_at<uint16_t>(at) != kUnwritten) return false;
  return true;
}

// Null where there is none. The last element of 2 bytes has no neighbour to ask.
const char* first_unwritten(const char* at, const char* end, DType dtype) {
  constexpr uint64_t pattern = kUnwritten * 0x0001000100010001u;
  const char* last = end - size_of(dtype);
  bool whole = size_of(dtype) == 8;
  for (at += -reinterpret_cast<uintptr_t>(at) % 4; end - at >= (whole ? 8 : 4); at += whole ? 8 : 4)
    if (whole ? word_at<uint64_t>(at) == pattern : word_at<uint32_t>(at) == uint32_t(pattern)) return at;
  return size_of(dtype) == 2 && word_at<uint16_t>(last) == kUnwritten ? last : nullptr;
}

}  // namespace

void Machine::check_locals() {
  for (const Region& region : regions_)
    if (region.cells && region.kind == Region::Kind::global && is_floating(region.dtype)) check_locals(region);
}
void Machine::check_locals(const Region& region) {
  size_t step = size_of_check(region.dtype);
  for (uintptr_t at = (region.begin + 3) & ~uintptr_t(3); at + step <= region.end; at += step) {
    if (!is_unset_local(region.dtype, reinterpret_cast<const char*>(at), kernel_->unset_local())) [[likely]]
      continue;
    const Cell& cell = region.cell(at);
    if (cell.era != launch_ || !cell.write_mask || cell.write.block < first_block_) continue;
    blockIdx = index_in(grid_, cell.write.block - first_block_);
    return set_fault(cell.write.thread,
                     {cell.write.code, concat("writes to ", region.what, " at byte ", at - region.begin,
                                              " what a local variable holds that nobody has set")});
  }
}

void Operands::note(const OutView& view) {
  add(view.data, view.bytes(), true, "output", view.dtype);
  const auto* begin = view.as<const char>();
  if (begin && view.beta == 0 && all_unwritten(begin, begin + view.bytes())) fresh_.push_back(view);
}

void Operands::check_written(const char* operation) const {
  std::string last = Machine::mine().last_kernel();
  for (const OutView& view : fresh_) {
    const auto* begin = view.as<const char>();
    if (const char* missing = first_unwritten(begin, begin + view.bytes(), view.dtype))
      fail_as(ErrorKind::internal, "simulator: ", kernel_name(operation),
              last.empty() ? ", which launches no kernel" : ", whose last kernel is ", last, ", leaves element ",
              size_t(missing - begin) / size_of(view.dtype), " of an output of ", view.numel(), " unwritten");
  }
}

void writes_a_part_of(const OutView& view) {
  if (Operands* operands = Operands::current()) operands->excuse(view);
}

}  // namespace shardgrad::sim
