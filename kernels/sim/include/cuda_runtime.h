#pragma once
// For kernels that name the CUDA header: on the simulator all of its words come from here.
#include <shardgrad/kernels/sim/language.h>
