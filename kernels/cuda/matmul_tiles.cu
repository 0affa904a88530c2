// Large matrix products of bf16 and f16: a block of four warps computes 128 × 128 elements of c, 64 × 64 per warp, on
// tensor cores. Slices of a and b, 32 deep, come to shared memory by asynchronous copies, the next two while one is
// multiplied:
//
//     slice k      is multiplied       8 fragments are read for 32 products of 16 × 16 by 16 × 8
//     slice k + 1  is on its way
//     slice k + 2  is begun            where slice k - 1 was: one barrier per slice says that it has been read
//
// 2·M·N·K operations, and M·N·K / 64 elements moved from memory. A slice lies as its operand does, whichever of its
// dimensions is contiguous; load_matrices transposes the others.

#include <shardgrad/kernels/cuda/matmul_tiles.h>
#include <shardgrad/kernels/cuda/tiles.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kSide = 128, kSlice = 32, kSlices = 3, kPart = kSide / 2;

/// A slice of an operand: rows of the product's (or of its columns), 32 deep, or 32 rows across them.
template <bool across> using Slice = std::conditional_t<across, RowsTile<kSide, kSlice>, RowsTile<kSlice, kSide>>;
template <bool across_a, bool across_b> struct Slices {
  Slice<across_a> a;
  Slice<across_b> b;
};

/// Begins to bring elements [first, first + 128) × [k, k + 32) of an operand of `outside` × `depth`.
template <bool across, class T>
__device__ void bring_slice(Slice<across>& slice, const T* data, int64_t step, int64_t first, int64_t outside,
                            int64_t k, int64_t depth) {
  int64_t left = outside - first < kSide ? outside - first : kSide, deep = depth - k < kSlice ? depth - k : kSlice;
  if constexpr (across)
    bring_rows(slice, RowsOf<T>{data + k * step + first, step, deep, int(left), true});
  else
    bring_rows(slice, RowsOf<T>{data + first * step + k, step, left, int(deep), true});
}

using PartSums = float[kPart / 16][kPart / 8][4];

/// sums += the part of a slice's product that begins at (row, col).
template <class T, bool across_a, bool across_b>
__device__ void add_slice(PartSums& sums, const Slices<across_a, across_b>& slice, int row, int col, const Lane& lane) {
  SG_UNROLL
  for (int deep = 0; deep < kSlice; deep += 16) {
    uint32_t x[kPart / 16][4];
    SG_UNROLL
    for (int i = 0; i < kPart / 16; ++i) {
      if constexpr (across_a)
        first_factor_across(x[i], slice.a, row + i * 16, deep, lane);
      else
        first_factor(x[i], slice.a, row + i * 16, deep, lane);
    }
    SG_UNROLL
    for (int j = 0; j < kPart / 8; j += 2) {
      uint32_t y[2][2];
      second_factors<across_b>(y, slice.b, deep, col + j * 8, lane);
      SG_UNROLL
      for (int i = 0; i < kPart / 16; ++i) add_product<T>(sums[i][j], sums[i][j + 1], x[i], y);
    }
  }
}

constexpr int kHalf = kPart / 2;
/// Half of the columns of each warp's part, for their way to memory.
struct HalfOfResult {
  float at[kSide][2 * kHalf + 1];
};

// Through shared memory, half of the columns at a time, so that neighbouring threads write neighbours.
template <class T>
__device__ void put_sums(const PartSums& sums, HalfOfResult& result, const Finish<T>& finish, const Place& place,
                         const Lane& lane) {
  int row = lane.warp / 2 * kPart + lane.group, col = lane.warp % 2 * kHalf + lane.two;
  SG_UNROLL
  for (int half = 0; half < 2; ++half) {
    __syncthreads();
    SG_UNROLL
    for (int i = 0; i < kPart / 16; ++i) {
      SG_UNROLL
      for (int j = 0; j < kHalf / 8; ++j) {
        SG_UNROLL
        for (int e = 0; e < 4; ++e)
          result.at[row + i * 16 + e / 2 * 8][col + j * 8 + e % 2] = sums[i][half * (kHalf / 8) + j][e];
      }
    }
    __syncthreads();
    for (int e = int(threadIdx.x); e < kSide * 2 * kHalf; e += kTileThreads) {
      int down = e / (2 * kHalf), across = e % (2 * kHalf);
      finish(place.batch, place.row + down, place.col + across / kHalf * kPart + half * kHalf + across % kHalf,
             result.at[down][across]);
    }
  }
}

// across_a: a's columns are contiguous (it is transposed); across_b: b's rows are (it is not).
template <class T, bool across_a, bool across_b>
__launch_bounds__(kTileThreads, 2) __global__
    void pipelined_matmul_kernel(Finish<T> finish, Operand<T> a, Operand<T> b) {
  auto* slices = dynamic_shared<Slices<across_a, across_b>>();
  Place place(a.rows, b.cols, kSide);
  a.data += place.batch * a.batch_step;
  b.data += place.batch * b.batch_step;
  Lane lane;
  int row = lane.warp / 2 * kPart, col = lane.warp % 2 * kPart;
  auto bring = [&](int64_t k, int slice) {
    if (k < a.cols) {
      bring_slice<across_a>(slices[slice].a, a.data, across_a ? a.col_step : a.row_step, place.row, a.rows, k, a.cols);
      bring_slice<across_b>(slices[slice].b, b.data, across_b ? b.row_step : b.col_step, place.col, b.cols, k, a.cols);
    }
    group_copies();
  };
  PartSums sums = {};
  for (int slice = 0; slice < kSlices - 1; ++slice) bring(slice * kSlice, slice);
  int now = 0, next = kSlices - 1;
  for (int64_t k = 0; k < a.cols; k += kSlice) {
    wait_for_copies<kSlices - 2>();
    __syncthreads();
    bring(k + (kSlices - 1) * kSlice, next);
    add_slice<T>(sums, slices[now], row, col, lane);
    next = now;
    now = now + 1 < kSlices ? now + 1 : 0;
  }
  wait_for_copies<0>();
  put_sums(sums, *dynamic_shared<HalfOfResult>(), finish, place, lane);
}

static_assert(sizeof(HalfOfResult) <= kSlices * sizeof(Slices<true, true>), "the result takes the place of the slices");

template <class T> bool packed(const Operand<T>& x) {
  int64_t step = x.col_step == 1 ? x.row_step : x.col_step, length = x.col_step == 1 ? x.cols : x.rows;
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && step % kTilePack == 0 && length % kTilePack == 0 &&
         x.batch_step % kTilePack == 0;
}

}  // namespace

template <class T>
bool product_by_tiles(const Launch& how, const Finish<T>& finish, const Operand<T>& a, const Operand<T>& b,
                      int64_t batches) {
  if (a.rows < kSide || b.cols < kSide || a.cols == 0 || !packed(a) || !packed(b)) return false;
  auto with = [&]<bool across_a, bool across_b>() {
    Config config{blocks_of(batches, a.rows, b.cols, kSide), dim3(kTileThreads),
                  kSlices * sizeof(Slices<across_a, across_b>)};
    launch<pipelined_matmul_kernel<T, across_a, across_b>>(how, config, finish, a, b);
    return true;
  };
  bool across_a = a.col_step != 1, across_b = b.col_step == 1;
  if (across_a) return across_b ? with.template operator()<true, true>() : with.template operator()<true, false>();
  return across_b ? with.template operator()<false, true>() : with.template operator()<false, false>();
}
template bool product_by_tiles(const Launch&, const Finish<bf16>&, const Operand<bf16>&, const Operand<bf16>&, int64_t);
template bool product_by_tiles(const Launch&, const Finish<f16>&, const Operand<f16>&, const Operand<f16>&, int64_t);

}  // namespace shardgrad::SG_DEVICE
