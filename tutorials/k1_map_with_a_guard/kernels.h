#pragma once
// y = 2x³ + 3x² + 5x + 7 of every element of x, f32.

#include <shardgrad/tutorials/kernel.h>

extern learn::Kernel polynomial;
