#pragma once
// What the own kernels leave to cuBLASLt.

#include <shardgrad/kernels/ops.h>

namespace shardgrad::gpu {

/// kernels::matmul by cuBLASLt (cublaslt.cpp). False, having queued nothing that writes c, where it has no algorithm
/// for the operands, where SHARDGRAD_GEMM=own, and in builds without it.
bool library_product(const Launch& how, OutView c, OutView pre, View a, View b, View bias, kernels::MatmulArgs args);

}  // namespace shardgrad::gpu
