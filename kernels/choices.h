#pragma once
// What the user asks of kernels by environment variables, beside SHARDGRAD_ISA (kernels/table.h). A value that means
// nothing is refused where it is first asked for: Error(input) with those that do.

namespace shardgrad {

/// SHARDGRAD_GEMM=own: matrix products without oneDNN and cuBLASLt.
bool own_products_wanted();
/// SHARDGRAD_TF32=1: products of f32 may round their operands to TF32.
bool tf32_wanted();
/// Asks for all of them, for a program that refuses them before it begins.
void check_kernel_choices();

}  // namespace shardgrad
