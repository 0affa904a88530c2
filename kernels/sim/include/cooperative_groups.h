#pragma once
// For kernels that name the CUDA header.
#include <shardgrad/kernels/sim/groups.h>
