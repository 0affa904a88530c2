#pragma once
// Captures of a GPU: CUDA graphs.

#include <memory>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/capture_memory.h>
#include <shardgrad/core/cuda/stream.h>

namespace shardgrad {

std::unique_ptr<Capture> make_cuda_capture(Backend& backend, Ref<CaptureMemory> memory);

}  // namespace shardgrad
