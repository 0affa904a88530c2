#pragma once
// c = a · b of square matrices, f32, whose sides are multiples of 64.

#include <shardgrad/tutorials/kernel.h>

extern learn::Kernel many_each;
