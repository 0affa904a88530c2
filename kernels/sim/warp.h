#pragma once
// Where simulated threads meet: barriers, warp operations, atomics. Each takes the line it was called from.

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
enum class Reduction : uint8_t { sum, least, most, least_signed, most_signed, bits_of_all, bits_of_any, odd_bits };
/// What the lanes in mask passed, as one number.
unsigned reduce(unsigned mask, unsigned value, Reduction how, const SourceLine& here);
/// The lanes in mask that passed the same bits as this one.
unsigned lanes_with(unsigned mask, uint64_t bits, const SourceLine& here);
/// The lanes of the warp that are at this place when none of the warp can go on.
unsigned active_lanes(const SourceLine& here);
/// __threadfence: what this thread has seen may be published by its next atomic.
void fence();

enum class Shuffle : uint8_t { index, up, down, exclusive_or };
/// The bits that another lane passed.
uint64_t shuffle_bits(unsigned mask, uint64_t bits, Shuffle how, int operand, int width, const SourceLine& here);

/// A value of up to 8 bytes as bits, and back.
template <class T> uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8, "CUDA exchanges values of 2, 4 and 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T> T shuffle(unsigned mask, T value, Shuffle how, int operand, int width, const SourceLine& here) {
  uint64_t bits = shuffle_bits(mask, bits_of(value), how, operand, width, here);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
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

/// An access by the instructions of a line, which move 16 bytes at a time.
void note_access(const void* at, size_t bytes, bool write, const SourceLine& here);
/// Reads and writes that tell their line themselves.
template <class T> __attribute__((no_sanitize("thread"))) T load_hinted(const T* from, const SourceLine& here) {
  note_access(from, sizeof(T), false, here);
  return *from;
}
template <class T> __attribute__((no_sanitize("thread"))) void store_hinted(T* to, T value, const SourceLine& here) {
  note_access(to, sizeof(T), true, here);
  *to = value;
}

/// An access by one instruction, from the code at `from`.
void note_access(const void* at, size_t bytes, bool write, const void* from);

/// Begins a copy, by the code at `code`; closes a group of them; waits for all groups but the last `still_open`.
void copy_later(void* to, const void* from, size_t bytes, const void* code);
void close_copies();
void await_copies(int still_open);

void* dynamic_shared_memory();

}  // namespace shardgrad::sim
