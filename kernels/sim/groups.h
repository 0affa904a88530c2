#pragma once
// CUDA's cooperative groups of one block: the block, tiles of a warp, and the lanes that are at one place. Grids that
// wait for each other are none here.

#include <bit>

#include <shardgrad/kernels/sim/language.h>

namespace cooperative_groups {
namespace sim = shardgrad::sim;

#define SG_HERE sim::SourceLine here = sim::SourceLine::current()

namespace details {
inline unsigned rank_in_block() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
inline unsigned size_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
inline unsigned lane() { return rank_in_block() % 32; }

/// Of the lanes in mask, `size` that follow each other: those among which the one of this rank is.
inline unsigned part_of(unsigned mask, unsigned rank, unsigned size) {
  unsigned part = 0, at = 0;
  for (unsigned rest = mask; rest; rest &= rest - 1, ++at)
    if (at / size == rank / size) part |= rest & -rest;
  return part;
}

/// What groups of lanes have in common.
class Lanes {
 public:
  void sync(SG_HERE) const { sim::sync_warp(mask_, here); }
  int any(int predicate, SG_HERE) const { return sim::vote(mask_, predicate != 0, here) != 0; }
  int all(int predicate, SG_HERE) const { return sim::vote(mask_, predicate == 0, here) == 0; }
  unsigned mask() const { return mask_; }

 protected:
  explicit Lanes(unsigned mask) : mask_(mask) {}
  unsigned mask_;
};
}  // namespace details

/// All threads of the block.
class thread_block {
 public:
  static void sync(SG_HERE) { sim::barrier(false, here); }
  static unsigned thread_rank() { return details::rank_in_block(); }
  static unsigned num_threads() { return details::size_of_block(); }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 dim_threads() { return blockDim; }
  static dim3 group_dim() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

/// All threads of the launch. They cannot wait for each other.
class grid_group {
 public:
  static unsigned long long block_rank() {
    return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static unsigned long long num_blocks() { return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z; }
  static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  static unsigned long long num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned long long size() { return num_threads(); }
  static dim3 group_dim() { return gridDim; }
};
inline grid_group this_grid() { return {}; }

/// Size neighbouring lanes of a warp. Size is a power of two.
template <unsigned Size, class Parent = thread_block> class thread_block_tile : public details::Lanes {
  static_assert(std::has_single_bit(Size) && Size <= 32, "a tile is 1, 2, 4, 8, 16 or 32 lanes");

 public:
  thread_block_tile(unsigned rank_in_parent, unsigned size_of_parent)
      : Lanes((Size == 32 ? ~0u : (1u << Size % 32) - 1) << begin()),
        rank_(rank_in_parent / Size),
        count_((size_of_parent + Size - 1) / Size) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<Size, Other>& tile)
      : Lanes(tile.mask()), rank_(tile.meta_group_rank()), count_(tile.meta_group_size()) {}
  static unsigned thread_rank() { return details::lane() % Size; }
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  unsigned meta_group_rank() const { return rank_; }
  unsigned meta_group_size() const { return count_; }
  template <class T> T shfl(T value, int from, SG_HERE) const {
    return sim::shuffle(mask_, value, sim::Shuffle::index, from, int(Size), here);
  }
  template <class T> T shfl_up(T value, unsigned by, SG_HERE) const {
    return sim::shuffle(mask_, value, sim::Shuffle::up, int(by), int(Size), here);
  }
  template <class T> T shfl_down(T value, unsigned by, SG_HERE) const {
    return sim::shuffle(mask_, value, sim::Shuffle::down, int(by), int(Size), here);
  }
  template <class T> T shfl_xor(T value, int bits, SG_HERE) const {
    return sim::shuffle(mask_, value, sim::Shuffle::exclusive_or, bits, int(Size), here);
  }
  unsigned ballot(int predicate, SG_HERE) const { return sim::vote(mask_, predicate != 0, here) >> begin(); }
  template <class T> unsigned match_any(T value, SG_HERE) const {
    return sim::lanes_with(mask_, sim::bits_of(value), here) >> begin();
  }

 private:
  static unsigned begin() { return details::lane() / Size * Size; }
  unsigned rank_, count_;
};
template <unsigned Size> thread_block_tile<Size> tiled_partition(const thread_block& block) {
  return {block.thread_rank(), block.size()};
}
template <unsigned Size, unsigned Larger, class Parent>
thread_block_tile<Size, thread_block_tile<Larger, Parent>> tiled_partition(
    const thread_block_tile<Larger, Parent>& tile) {
  static_assert(Size <= Larger);
  return {tile.thread_rank(), Larger};
}

/// Lanes of a warp that were at one place. A lane's rank counts those before it.
class coalesced_group : public details::Lanes {
 public:
  explicit coalesced_group(unsigned mask, unsigned meta_rank = 0, unsigned meta_size = 1)
      : Lanes(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}
  unsigned thread_rank() const { return rank_of(details::lane()); }
  unsigned num_threads() const { return unsigned(std::popcount(mask_)); }
  unsigned size() const { return num_threads(); }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }
  template <class T> T shfl(T value, unsigned from, SG_HERE) const {
    return sim::shuffle(mask_, value, sim::Shuffle::index, lane_of(from % size()), 32, here);
  }
  template <class T> T shfl_up(T value, unsigned by, SG_HERE) const {
    return shfl(value, thread_rank() < by ? thread_rank() : thread_rank() - by, here);
  }
  template <class T> T shfl_down(T value, unsigned by, SG_HERE) const {
    return shfl(value, thread_rank() + by < size() ? thread_rank() + by : thread_rank(), here);
  }
  unsigned ballot(int predicate, SG_HERE) const {
    unsigned votes = sim::vote(mask_, predicate != 0, here), packed = 0;
    for (unsigned rest = votes; rest; rest &= rest - 1) packed |= 1u << rank_of(unsigned(std::countr_zero(rest)));
    return packed;
  }

 private:
  unsigned rank_of(unsigned lane) const { return unsigned(std::popcount(mask_ & ((1u << lane) - 1))); }
  int lane_of(unsigned rank) const {
    unsigned rest = mask_;
    for (; rank > 0; --rank) rest &= rest - 1;
    return std::countr_zero(rest);
  }
  unsigned meta_rank_, meta_size_;
};
inline coalesced_group coalesced_threads(SG_HERE) { return coalesced_group(sim::active_lanes(here)); }
/// `size` of the group that follow each other; the last part may have fewer.
inline coalesced_group tiled_partition(const coalesced_group& group, unsigned size) {
  unsigned rank = group.thread_rank();
  return coalesced_group(details::part_of(group.mask(), rank, size), rank / size, (group.size() + size - 1) / size);
}
/// Those of the group that pass the same label.
template <class Group, class T> coalesced_group labeled_partition(const Group& group, T label, SG_HERE) {
  unsigned same = sim::lanes_with(group.mask(), sim::bits_of(label), here);
  unsigned first = same & -same, firsts = sim::vote(group.mask(), first >> details::lane() == 1, here);
  return coalesced_group(same, unsigned(std::popcount(firsts & (first - 1))), unsigned(std::popcount(firsts)));
}

/// Any group of a block, whose kind is known when the kernel runs.
class thread_group {
 public:
  thread_group(const thread_block& block) : rank_(block.thread_rank()), size_(block.size()) {}
  template <unsigned Size, class Parent>
  thread_group(const thread_block_tile<Size, Parent>& tile)
      : mask_(tile.mask()), rank_(tile.thread_rank()), size_(Size) {}
  thread_group(const coalesced_group& group) : mask_(group.mask()), rank_(group.thread_rank()), size_(group.size()) {}
  /// Tiles of `size` threads that follow each other, a power of two up to 32.
  thread_group tile(unsigned size) const {
    thread_group part = *this;
    part.mask_ = details::part_of(mask_ ? mask_ : ~0u, rank_ % 32, size);
    part.rank_ = rank_ % size;
    part.size_ = unsigned(std::popcount(part.mask_));
    return part;
  }
  void sync(SG_HERE) const { mask_ ? sim::sync_warp(mask_, here) : thread_block::sync(here); }
  unsigned thread_rank() const { return rank_; }
  unsigned num_threads() const { return size_; }
  unsigned size() const { return size_; }

 private:
  unsigned mask_ = 0, rank_, size_;
};

inline thread_group tiled_partition(const thread_group& group, unsigned size) { return group.tile(size); }

template <class Group> void sync(const Group& group, SG_HERE) { group.sync(here); }

#undef SG_HERE
}  // namespace cooperative_groups
