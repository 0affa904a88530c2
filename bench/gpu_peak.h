#pragma once

#include <shardgrad/core/dtype.h>

namespace shardgrad::bench {

/// The fastest product of two n × n matrices that cuBLASLt has, in TFLOP/s: asked directly, with 256 MiB of workspace,
/// each of its choices timed. 0 in a build without cuBLASLt.
double cublas_peak(DType dtype, bool tf32, int64_t n);

}  // namespace shardgrad::bench
