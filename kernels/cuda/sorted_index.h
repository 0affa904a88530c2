#pragma once
// The entries of an index in the order of their values, entries of one value in their own order: a radix sort of eight
// bits a pass, each a counting sort. A warp has 256 entries, which it asks for all at once, and counts them by their
// digit, 32 at a time; one block makes of all blocks' counts where each block's entries of a digit begin; the warps
// count again, begin where those before them in their block end, and put their entries there. No place depends on which
// warp comes first.
//
// Per pass two reads of the index and of the order so far, one write; about 60 operations per entry.

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kDigits = 256, kDigitBits = 8;
constexpr int kEntriesOfLane = 8, kSortWarps = 8;  // at most that many warps of a block
constexpr int64_t kEntriesOfWarp = 32 * kEntriesOfLane;

/// What one pass sorts: the digits at bit `shift` of index[order[k]], or of index[k] in the first pass.
struct SortPass {
  const int64_t *index, *order;
  int64_t count, shift;
  __device__ int64_t entry(int64_t k) const { return order ? order[k] : k; }
  __device__ int digit(int64_t value) const { return int(value >> shift & (kDigits - 1)); }
};

/// The entries of a lane, every 32nd from place `first` on, and their digits; -1 where there are no more.
struct EntriesOfLane {
  int64_t entry[kEntriesOfLane];
  int digit[kEntriesOfLane];

  /// Refuses an index outside [0, extent) where it is to check.
  __device__ EntriesOfLane(const SortPass& pass, int64_t first, bool check, int64_t extent) {
    int64_t value[kEntriesOfLane];
    SG_UNROLL
    for (int i = 0; i < kEntriesOfLane; ++i)
      entry[i] = first + i * warpSize < pass.count ? pass.entry(first + i * warpSize) : -1;
    SG_UNROLL
    for (int i = 0; i < kEntriesOfLane; ++i) value[i] = entry[i] < 0 ? 0 : pass.index[entry[i]];
    SG_UNROLL
    for (int i = 0; i < kEntriesOfLane; ++i) {
      if (check && entry[i] >= 0) check_index("index_add: index", entry[i], value[i], extent);
      digit[i] = entry[i] < 0 ? -1 : pass.digit(value[i]);
    }
  }
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

// Gives the warp's entries of digit d the places from next[d] on, in their order, and moves next[d] behind them. Writes
// the entries there unless `sorted` is null. All lanes of the warp call.
__device__ inline void deal_places(const EntriesOfLane& mine, int64_t* next, int64_t* sorted) {
  unsigned lanes_before = (1u << threadIdx.x % unsigned(warpSize)) - 1;
  SG_UNROLL
  for (int i = 0; i < kEntriesOfLane; ++i) {
    int digit = mine.digit[i];
    bool has_one = digit >= 0;
    if (!__any_sync(kWholeWarp, has_one)) break;
    unsigned alike = lanes_with(digit, has_one), before = alike & lanes_before;
    int64_t place = has_one ? next[digit] + __popc(before) : 0;
    __syncwarp();
    if (has_one && sorted) sorted[place] = mine.entry[i];
    if (has_one && before == 0) next[digit] = place + __popc(alike);
    __syncwarp();
  }
}

// Of the entries of block b, places[b][d] is how many have digit d where `sorted` is null, else where the first one
// belongs. The first time it refuses an index outside [0, extent).
__global__ void sort_entries_kernel(SortPass pass, int64_t* sorted, int64_t* places, int64_t extent) {
  __shared__ int64_t next[kSortWarps][kDigits];
  int thread = int(threadIdx.x), lane = thread % warpSize, warp = thread / warpSize, warps = int(blockDim.x) / warpSize;
  places += int64_t(blockIdx.x) * kDigits;
  EntriesOfLane mine(pass, (int64_t(blockIdx.x) * warps + warp) * kEntriesOfWarp + lane, !sorted && !pass.order,
                     extent);
  for (int d = lane; d < kDigits; d += warpSize) next[warp][d] = 0;
  __syncwarp();
  deal_places(mine, next[warp], nullptr);
  __syncthreads();
  for (int d = thread; d < kDigits; d += int(blockDim.x)) {
    int64_t place = sorted ? places[d] : 0;
    for (int w = 0; w < warps; ++w) {
      int64_t count = next[w][d];
      next[w][d] = place;
      place += count;
    }
    if (!sorted) places[d] = place;
  }
  if (!sorted) return;
  __syncthreads();
  deal_places(mine, next[warp], sorted);
}

// Adds a digit's counts in all blocks to `place`, those of 16 blocks asked for at once. Where it is to write, a count
// becomes the sum of what came before it.
__device__ inline int64_t sum_counts(int64_t* counts, int64_t blocks, int64_t place, bool write) {
  constexpr int together = 16;
  for (int64_t first = 0; first < blocks; first += together) {
    int64_t some[together];
    SG_UNROLL
    for (int i = 0; i < together; ++i) some[i] = first + i < blocks ? counts[(first + i) * kDigits] : 0;
    SG_UNROLL
    for (int i = 0; i < together; ++i) {
      if (write && first + i < blocks) counts[(first + i) * kDigits] = place;
      place += some[i];
    }
  }
  return place;
}

// Counts become places: before the entries of a digit in a block come those of smaller digits, and those of the same
// one in the blocks before. One block with a thread for each digit.
__global__ void sort_places_kernel(int64_t* places, int64_t blocks) {
  __shared__ int64_t totals[kDigits];
  int digit = int(threadIdx.x);
  int64_t place = 0;
  totals[digit] = sum_counts(places + digit, blocks, 0, false);
  __syncthreads();
  for (int d = 0; d < digit; ++d) place += totals[d];
  sum_counts(places + digit, blocks, place, true);
}

/// Numbers of the entries of an index i64 of at least one, sorted by their value. Refuses values outside [0, extent).
class SortedIndex {
 public:
  SortedIndex(const Launch& how, View index, int64_t extent)
      : count_(index.numel()),
        warps_(std::min(kSortWarps, int(blocks_for(count_, kEntriesOfWarp)))),
        blocks_(int64_t(blocks_for(count_, warps_ * kEntriesOfWarp))),
        memory_(how, size_t(2 * count_ + blocks_ * kDigits) * sizeof(int64_t)) {
    int64_t *orders[] = {memory_.as<int64_t>(), memory_.as<int64_t>() + count_}, *places = orders[1] + count_;
    SortPass pass{index.as<int64_t>(), nullptr, count_, 0};
    Config config{unsigned(blocks_), unsigned(32 * warps_)};
    do {
      int64_t* sorted = orders[pass.shift / kDigitBits % 2];
      launch<sort_entries_kernel>(how, config, pass, static_cast<int64_t*>(nullptr), places, extent);
      launch<sort_places_kernel>(how, {1, kDigits}, places, blocks_);
      launch<sort_entries_kernel>(how, config, pass, sorted, places, extent);
      pass.order = sorted;
      pass.shift += kDigitBits;
    } while ((extent - 1) >> pass.shift > 0);
    order_ = pass.order;
  }
  const int64_t* order() const { return order_; }

 private:
  int64_t count_;
  int warps_;
  int64_t blocks_;
  Scratch memory_;
  const int64_t* order_ = nullptr;
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
