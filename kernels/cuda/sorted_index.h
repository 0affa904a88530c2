#pragma once
// The entries of an index in the order of their values, entries of one value in their own order: a radix sort of eight
// bits a pass. In each pass a warp goes through a chunk of entries, 32 at a time, and counts them by their digit; one
// block makes of all counts where each chunk's entries of a digit begin; the warps go through their chunks again and
// put the entries there. No place depends on which warp comes first.
//
// Per pass two reads of the index and of the order so far, one write; about 40 operations per entry.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kDigits = 256, kDigitBits = 8;
constexpr int64_t kEntriesOfWarp = 1024;

/// What one pass sorts: the digits at bit `shift` of index[order[k]], or of index[k] in the first pass.
struct SortPass {
  const int64_t *index, *order;
  int64_t count, shift;
  __device__ int64_t entry(int64_t k) const { return order ? order[k] : k; }
  __device__ int digit(int64_t entry) const { return int(index[entry] >> shift & (kDigits - 1)); }
};

/// The lanes whose digit is `digit`, of those that have one. All lanes of the warp call.
__device__ inline unsigned lanes_with(int digit, bool has_one) {
  unsigned alike = __ballot_sync(kWholeWarp, has_one);
  for (int bit = 0; bit < kDigitBits; ++bit) {
    unsigned ones = __ballot_sync(kWholeWarp, digit >> bit & 1);
    alike &= digit >> bit & 1 ? ones : ~ones;
  }
  return alike;
}

// Of the chunk of block b, places[b][d] is how many entries have digit d where `sorted` is null, else where the first
// one belongs. One warp. The first time it refuses an index outside [0, extent).
__global__ void sort_entries_kernel(SortPass pass, int64_t* sorted, int64_t* places, int64_t extent) {
  __shared__ int64_t next[kDigits];
  int lane = int(threadIdx.x);
  places += int64_t(blockIdx.x) * kDigits;
  for (int d = lane; d < kDigits; d += warpSize) next[d] = sorted ? places[d] : 0;
  __syncwarp();
  int64_t begin = blockIdx.x * kEntriesOfWarp;
  int64_t end = begin + kEntriesOfWarp < pass.count ? begin + kEntriesOfWarp : pass.count;
  for (int64_t first = begin; first < end; first += warpSize) {
    bool mine = first + lane < end;
    int64_t entry = mine ? pass.entry(first + lane) : 0;
    if (mine && !sorted && !pass.order) check_index("index_add: index", entry, pass.index[entry], extent);
    int digit = mine ? pass.digit(entry) : 0;
    unsigned alike = lanes_with(digit, mine), before = alike & ((1u << lane) - 1);
    int64_t place = mine ? next[digit] + __popc(before) : 0;
    __syncwarp();
    if (mine && sorted) sorted[place] = entry;
    if (mine && before == 0) next[digit] = place + __popc(alike);
    __syncwarp();
  }
  if (!sorted)
    for (int d = lane; d < kDigits; d += warpSize) places[d] = next[d];
}

// Counts become places: before the entries of a digit in a chunk come those of smaller digits, and those of the same
// one in the chunks before. One block with a thread for each digit.
__global__ void sort_places_kernel(int64_t* places, int64_t chunks) {
  __shared__ int64_t totals[kDigits];
  int digit = int(threadIdx.x);
  int64_t total = 0, place = 0;
  for (int64_t c = 0; c < chunks; ++c) total += places[c * kDigits + digit];
  totals[digit] = total;
  __syncthreads();
  for (int d = 0; d < digit; ++d) place += totals[d];
  for (int64_t c = 0; c < chunks; ++c) {
    int64_t count = places[c * kDigits + digit];
    places[c * kDigits + digit] = place;
    place += count;
  }
}

/// Numbers of the entries of an index i64, sorted by their value. Refuses values outside [0, extent).
class SortedIndex {
 public:
  SortedIndex(const Launch& how, View index, int64_t extent)
      : count_(index.numel()),
        chunks_(int64_t(blocks_for(count_, kEntriesOfWarp))),
        memory_(how, size_t(2 * count_ + chunks_ * kDigits) * sizeof(int64_t)) {
    int64_t *orders[] = {memory_.as<int64_t>(), memory_.as<int64_t>() + count_}, *places = orders[1] + count_;
    SortPass pass{index.as<int64_t>(), nullptr, count_, 0};
    Config warps{unsigned(chunks_), 32};
    do {
      int64_t* sorted = orders[pass.shift / kDigitBits % 2];
      launch<sort_entries_kernel>(how, warps, pass, static_cast<int64_t*>(nullptr), places, extent);
      launch<sort_places_kernel>(how, {1, kDigits}, places, chunks_);
      launch<sort_entries_kernel>(how, warps, pass, sorted, places, extent);
      pass.order = sorted;
      pass.shift += kDigitBits;
    } while ((extent - 1) >> pass.shift > 0);
    order_ = pass.order;
  }
  const int64_t* order() const { return order_; }

 private:
  int64_t count_, chunks_;
  Scratch memory_;
  const int64_t* order_ = nullptr;
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
