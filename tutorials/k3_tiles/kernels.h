#pragma once
// c = a · b of square matrices, f32, whose sides are multiples of 16.

#include <shardgrad/tutorials/kernel.h>

extern learn::Kernel naive, tiled;
