#pragma once
// A block's piece of a product, 64 × 64 elements of it: what lies in shared memory for some of the sum's length, how it
// is added, and how the sums leave the registers. Who brings the elements knows where they come from.
//     WideTiles    f32, f64: 256 threads of 4 × 4 sums each, rows and columns 16 apart
//     NarrowTiles  bf16, f16: 4 warps of 32 × 32 sums each, on tensor cores

#include <shardgrad/kernels/cuda/launch.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kTile = 64;

template <class T, class C = Compute<T>> struct WideTiles {
  static constexpr int block = 256, depth = 16, each = 4, side = kTile / each;
  using Sums = C[each][each];
  C at[2][depth][kTile + 1];  // [0] rows of the first factor, [1] columns of the second

  __device__ void put(int which, int i, int k, T element) { at[which][k][i] = convert<C>(element); }

  __device__ void add(Sums& sums, int, int) const {
    int row = int(threadIdx.x) / side, col = int(threadIdx.x) % side;
    for (int k = 0; k < depth; ++k) {
      C x[each], y[each];
      for (int i = 0; i < each; ++i) x[i] = at[0][k][row + i * side];
      for (int j = 0; j < each; ++j) y[j] = at[1][k][col + j * side];
      for (int i = 0; i < each; ++i)
        for (int j = 0; j < each; ++j) sums[i][j] += x[i] * y[j];
    }
  }

  // Through shared memory, half of the rows at a time: the sums stay in registers until here, and neighbouring threads
  // write neighbours.
  template <class Finish> __device__ void finish(const Sums& sums, const Finish& finish) {
    int row = int(threadIdx.x) / side, col = int(threadIdx.x) % side;
    SG_UNROLL
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < each / 2; ++i)
        for (int j = 0; j < each; ++j) at[i][row][col + j * side] = sums[half * each / 2 + i][j];
      __syncthreads();
      for (int e = int(threadIdx.x); e < kTile / 2 * kTile; e += int(blockDim.x)) {
        int down = e / kTile, across = e % kTile;
        finish(half * kTile / 2 + down, across, at[down / depth][down % depth][across]);
      }
      __syncthreads();
    }
  }
};

constexpr int kTensorDepth = 32, kPack = 8;
constexpr int kPitch = kTensorDepth + 8;  // elements from row to row: the eight rows that mma reads lie in other banks
struct alignas(kPack * 2) Tile {
  uint16_t at[kTile][kPitch];
};

/// Two neighbours of a tile, as mma wants them.
__device__ inline uint32_t pair(const Tile& tile, int row, int k) {
  Pack<uint16_t, 2> two = load_pack<2>(&tile.at[row][k]);
  return uint32_t(two.at[0]) | uint32_t(two.at[1]) << 16;
}

template <class T> struct NarrowTiles {
  static constexpr int block = 128, depth = kTensorDepth;
  using Sums = float[2][4][4];  // 16 rows of 2, 8 columns of 4: the four of this lane
  Tile at[2];
  float result[kTile][kTile + 1];

  __device__ void put(int which, int i, int k, T element) { at[which].at[i][k] = element.bits; }

  // Of the elements, `rows` and `cols` are in the result.
  __device__ void add(Sums& sums, int rows, int cols) const {
    int warp = int(threadIdx.x) / warpSize, lane = int(threadIdx.x) % warpSize, group = lane / 4, two = lane % 4 * 2;
    int row0 = warp / 2 * 32, col0 = warp % 2 * 32;
    bool idle = row0 >= rows || col0 >= cols;  // nothing of this warp's part is in the result
    for (int k = two; k < kTensorDepth && !idle; k += 16)
      for (int j = 0; j < 4; ++j) {
        int col = col0 + j * 8 + group;
        const uint32_t y[2] = {pair(at[1], col, k), pair(at[1], col, k + 8)};
        for (int i = 0; i < 2; ++i) {
          int row = row0 + i * 16 + group;
          const uint32_t x[4] = {pair(at[0], row, k), pair(at[0], row + 8, k), pair(at[0], row, k + 8),
                                 pair(at[0], row + 8, k + 8)};
          mma<T>(sums[i][j], x, y);
        }
      }
  }

  // Through shared memory, so that neighbouring threads write neighbours, and the sums stay in registers until here.
  template <class Finish> __device__ void finish(const Sums& sums, const Finish& finish) {
    int warp = int(threadIdx.x) / warpSize, lane = int(threadIdx.x) % warpSize, group = lane / 4, two = lane % 4 * 2;
    int row0 = warp / 2 * 32, col0 = warp % 2 * 32;
    SG_UNROLL
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 4; ++e)
          result[row0 + i * 16 + group + e / 2 * 8][col0 + j * 8 + two + e % 2] = sums[i][j][e];
    __syncthreads();
    for (int e = int(threadIdx.x); e < kTile * kTile; e += int(blockDim.x))
      finish(e / kTile, e % kTile, result[e / kTile][e % kTile]);
  }
};

template <class T> using TilesOf = std::conditional_t<sizeof(T) == 2, NarrowTiles<T>, WideTiles<T>>;

}  // namespace
}  // namespace shardgrad::SG_DEVICE
