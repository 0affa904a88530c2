#pragma once
// What a matrix product comes down to, for the implementations to choose from.

#include <shardgrad/kernels/ops.h>

namespace shardgrad::cpu {

/// batch products c (m, n) = a (m, k) · b (k, n) of contiguous matrices, stored transposed where it says so. Matrix i
/// of a begins a_step · i elements in (0: one for all), likewise b; those of c follow each other.
struct Product {
  int threads = 1;
  DType dtype = DType::f32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  const char *a = nullptr, *b = nullptr, *bias = nullptr;
  char* c = nullptr;
  int64_t a_step = 0, b_step = 0;
  bool trans_a = false, trans_b = false, accumulate = false;
};

}  // namespace shardgrad::cpu
