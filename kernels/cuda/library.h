#pragma once
// What the own kernels leave to cuBLASLt (cublaslt.cpp). Each is the operation of kernels/ops.h of the same name.
// False, having queued nothing that writes a result, where cuBLASLt has no algorithm for the operands, where
// SHARDGRAD_GEMM=own, and in builds without it.

#include <shardgrad/kernels/ops.h>

namespace shardgrad::gpu {

bool library_product(const Launch& how, OutView c, OutView pre, View a, View b, View bias, kernels::MatmulArgs args);
bool library_backward_input(const Launch& how, OutView dx, View dy, View w, View x, View mask);
/// dw is wanted.
bool library_backward_weight(const Launch& how, OutView dw, OutView dbias, View dy, View x);

}  // namespace shardgrad::gpu
