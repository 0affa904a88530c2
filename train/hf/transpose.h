#pragma once

#include <shardgrad/core/tensor.h>

namespace shardgrad::train::hf {

/// Elements of matrixᵀ from element `first` on, row-major, as many as `values` (one dimension) has. matrix: (rows,
/// columns); both of one dtype, on the cpu.
void read_transposed(const Tensor& matrix, int64_t first, const Tensor& values);

}  // namespace shardgrad::train::hf
