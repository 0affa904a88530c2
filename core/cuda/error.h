#pragma once
// CUDA's error codes as exceptions, and what a GPU needs of a build.

#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include <shardgrad/core/backend.h>

namespace shardgrad {

/// What happened, and what to do about it where that is known.
std::string describe(cudaError_t error);
/// Throws DeviceFault("WHAT: description"). After a fault of a kernel every later call fails; unless `at_its_op`, the
/// message says how to find the kernel.
[[noreturn]] void throw_cuda(cudaError_t error, std::string_view what, bool at_its_op = false);
inline void check_cuda(cudaError_t status, std::string_view what) {
  if (status != cudaSuccess) [[unlikely]]
    throw_cuda(status, what);
}

/// Whether GPU code built for `architectures`, as CMake writes them ("80-real;90"), runs on a GPU of `capability`.
bool runs_on(std::string_view architectures, int capability);

}  // namespace shardgrad
