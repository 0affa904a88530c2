#pragma once
// What the user asks of kernels by environment variables, SHARDGRAD_ISA (kernels/table.h) among them. A value
// that means nothing is refused where it is first asked for: Error(input) with those that do.

#include <shardgrad/core/environment.h>
#include <shardgrad/kernels/table.h>

namespace shardgrad {

inline constexpr EnvironmentChoice kIsaChoice = {"SHARDGRAD_ISA", {"plain", "avx2", "avx512"}};
inline constexpr EnvironmentChoice kProductsChoice = {"SHARDGRAD_GEMM", {"own", "timed"}};
inline constexpr EnvironmentChoice kTf32Choice = environment_switch("SHARDGRAD_TF32");

/// The best instruction set that this machine has, whatever SHARDGRAD_ISA says.
Isa machine_isa();

/// SHARDGRAD_GEMM=own: matrix products without oneDNN and cuBLASLt.
bool own_products_wanted();
/// SHARDGRAD_GEMM=timed: the fastest algorithm that cuBLASLt has for a product, and not the one that it takes to be.
bool timed_products_wanted();
/// SHARDGRAD_TF32=1: products of f32 may round their operands to TF32.
bool tf32_wanted();
/// Asks for all of them, for a program that refuses them before it begins.
void check_kernel_choices();

}  // namespace shardgrad
