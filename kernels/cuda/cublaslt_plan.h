#pragma once
// One matrix product by cuBLASLt, as it is asked for. It thinks in columns: a row-major (r, c) matrix is a column-major
// (c, r) one, so
//
//     C (m, n) = op(A) · op(B)     is computed as     Cᵀ (n, m) = op(B)ᵀ · op(A)ᵀ
//
// with B as its first operand and no transpose to be made: the n elements of the bias run along its rows, as it wants.
// Asking for the best algorithm costs more than a small product, so answers are kept per thread. With
// SHARDGRAD_GEMM=timed the eight best are tried by the first product of a kind, and the fastest is kept.

#include <cublasLt.h>

#include <shardgrad/kernels/ops.h>

namespace shardgrad::gpu {

inline constexpr int kLargestAlignment = 16;  ///< bytes; more never decides

struct Call {
  OutView c;
  View a, b;
  bool trans_a = false, trans_b = false;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void *bias = nullptr, *aux = nullptr;  ///< what the epilogue reads or writes beside the result
};

/// Bits of a row of ReLU's mask: cuBLASLt wants a multiple of 128.
inline int64_t mask_bits(int64_t columns) { return (columns + 127) / 128 * 128; }

/// Whether there is an algorithm. The addresses of the call count by their alignment only.
bool can_multiply(const Call& call);
/// False, with nothing queued, where there is none.
bool multiply(const Launch& how, const Call& call);

}  // namespace shardgrad::gpu
