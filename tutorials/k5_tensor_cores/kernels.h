#pragma once
// Products on tensor cores, of bf16 to f32. one_mma: (16, 16) · (16, 8), by one warp. tensor_cores: square matrices,
// whose sides are multiples of 64.

#include <shardgrad/tutorials/kernel.h>

extern learn::Kernel one_mma, tensor_cores;
