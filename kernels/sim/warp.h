#pragma once
// Where simulated threads meet: barriers, warp operations, atomics. Each takes the line it was called from.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <shardgrad/kernels/sim/source_line.h>

namespace shardgrad::sim {

/// Waits for every thread of the block. Gives back how many of them passed `vote`.
int barrier(bool vote, const SourceLine& here);
/// Waits for the lanes in mask and orders their memory accesses.
void sync_warp(unsigned mask, const SourceLine& here);
/// The lanes in mask that passed `vote`.
unsigned vote(unsigned mask, bool vote, const SourceLine& here);
/// __threadfence: what this thread has seen may be published by its next atomic.
void fence();

enum class Shuffle : uint8_t { index, up, down, exclusive_or };
/// The bits that another lane passed.
uint64_t shuffle_bits(unsigned mask, uint64_t bits, Shuffle how, int operand, int width, const SourceLine& here);

template <class T> T shuffle(unsigned mask, T value, Shuffle how, int operand, int width, const SourceLine& here) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles values of 4 and 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(Bits(shuffle_bits(mask, std::bit_cast<Bits>(value), how, operand, width, here)));
}

void note_atomic(const void* at, size_t bytes, const SourceLine& here);
/// *at = change(*at); gives back the old value.
template <class T, class Change>
__attribute__((no_sanitize("thread"))) T atomic(T* at, Change change, const SourceLine& here) {
  note_atomic(at, sizeof(T), here);
  T old = *at;
  *at = change(old);
  return old;
}

/// An access by one instruction, from the code at `from`.
void note_access(const void* at, size_t bytes, bool write, const void* from);

/// Begins a copy, by the code at `code`; closes a group of them; waits for all groups but the last `still_open`.
void copy_later(void* to, const void* from, size_t bytes, const void* code);
void close_copies();
void await_copies(int still_open);

void* dynamic_shared_memory();

}  // namespace shardgrad::sim
