#pragma once
// The test's side of the pretended GPU.

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fake_cuda {

/// What is there; reset() puts it back and checks nothing.
struct Machine {
  int gpus = 1;
  int driver = 13000;  ///< 0: none is loaded
  int capability = 90;
  size_t memory = size_t(1) << 30;
  bool pins = true;  ///< host memory can be pinned
};
Machine& machine();
void reset();

/// The `nth` call of `function` from now (1: the next) fails with `error`.
void fail_call(const std::string& function, int nth, cudaError_t error);
/// Runs `hook` in the next call of `function`, before it does anything.
void on_call(const std::string& function, std::function<void()> hook);
int64_t calls(const std::string& function);
/// Blocks of device and pinned memory that have not been given back, and streams and events that still exist.
int64_t alive();

/// NVTX ranges that the calling thread has opened and not closed, as calls that nest; and how often each was opened by
/// any thread, by name.
int open_ranges();
std::map<std::string, int> nested_ranges();
/// Those that may overlap: how often each was begun, by name; and how many of all are open.
std::map<std::string, int> overlapping_ranges();
int open_overlapping_ranges();

/// The calling thread's, as cudaSetDevice has set it.
int current_device();
/// The GPU that this memory was taken from, -1 for host memory; and the one that a stream belongs to.
int gpu_of(const void* memory);
int gpu_of(cudaStream_t stream);
/// From 0, the last to get room on the GPU, to -5.
int priority_of(cudaStream_t stream);

/// Copies that have been made.
std::atomic<int>& copied();

/// How often cuBLASLt was asked for an algorithm.
std::atomic<int>& heuristic_calls();

/// Products that cuBLASLt has queued, and what the last one was to compute in (a cublasComputeType_t).
std::atomic<int>& products();
/// cuBLASLt offers up to five algorithms; how much longer than the first each takes, and the one that came last.
std::array<int, 5>& milliseconds_of_algorithms();
std::atomic<int>& last_algorithm();
std::atomic<int>& computing_type();

/// Queues work as a kernel launch does: refused where the stream is not of the thread's current GPU, and a fault where
/// an operand lies on another one.
void launch(cudaStream_t stream, std::function<void()> work, const std::vector<const void*>& operands = {});
/// A kernel that faults when it runs: from then on every call returns `error`.
void launch_fault(cudaStream_t stream, cudaError_t error);
/// Launching fails at once, as with a kernel that this GPU has no code for: found by cudaGetLastError.
void refuse_launch(cudaError_t error);

}  // namespace fake_cuda
