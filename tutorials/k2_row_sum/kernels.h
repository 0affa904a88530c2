#pragma once
// y: the sum of each row of x, f32. A row has a multiple of 64 elements.

#include <shardgrad/tutorials/kernel.h>

extern learn::Kernel row_sum;
