#pragma once
// Takes pairs apart: every second element of a, then of b, from the first or from the second one on. low() and high()
// of simd.h undo that.

#include <shardgrad/kernels/cpu/isa/simd.h>

namespace shardgrad::cpu {
namespace {

#if defined(__AVX512F__)
SG_INLINE F32 evens(F32 a, F32 b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
SG_INLINE F32 odds(F32 a, F32 b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
SG_INLINE F64 evens(F64 a, F64 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
SG_INLINE F64 odds(F64 a, F64 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
#elif defined(__AVX2__)
SG_INLINE F32 evens(F32 a, F32 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
SG_INLINE F32 odds(F32 a, F32 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
SG_INLINE F64 evens(F64 a, F64 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
SG_INLINE F64 odds(F64 a, F64 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
#else
SG_INLINE F32 evens(F32 a, F32 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
SG_INLINE F32 odds(F32 a, F32 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
SG_INLINE F64 evens(F64 a, F64 b) { return __builtin_shufflevector(a, b, 0, 2); }
SG_INLINE F64 odds(F64 a, F64 b) { return __builtin_shufflevector(a, b, 1, 3); }
#endif

}  // namespace
}  // namespace shardgrad::cpu
