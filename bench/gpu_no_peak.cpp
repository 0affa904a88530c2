// In the place of gpu_peak.cpp where there is no cuBLASLt.

#include "gpu_peak.h"

double shardgrad::bench::cublas_peak(DType, bool, int64_t) { return 0; }
