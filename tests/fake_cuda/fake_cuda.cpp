#include "tests/fake_cuda/fake_cuda.h"

#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace fake_cuda {

// Of the process: set by the first fault of a kernel. A GPU does no more work then.
static std::atomic<cudaError_t> sticky{cudaSuccess};
static thread_local int chosen_device = 0;

// What was captured, in the order of the calls, which keeps that of the streams.
struct Graph {
  std::vector<std::function<void()>> work;
  std::set<Stream*> streams, unjoined;
};
struct ReadyGraph {
  std::vector<std::function<void()>> work;
};

struct Stream {
  Graph* graph = nullptr;  // that its work goes to
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> pending;
  uint64_t queued = 0, completed = 0;
  bool closing = false;
  int gpu = chosen_device, priority = 0;
  std::thread thread{[this] { loop(); }};

  void close() {
    {
      std::lock_guard lock(mutex);
      closing = true;
    }
    changed.notify_all();
    thread.join();
  }
  uint64_t newest() {
    std::lock_guard lock(mutex);
    return queued;
  }
  uint64_t push(std::function<void()> work) {
    std::lock_guard lock(mutex);
    if (graph) {
      graph->work.push_back(std::move(work));
      graph->unjoined.insert(this);
      return queued;
    }
    pending.push_back(std::move(work));
    changed.notify_all();
    return ++queued;
  }
  bool reached(uint64_t ticket) {
    std::lock_guard lock(mutex);
    return completed >= ticket;
  }
  void wait(uint64_t ticket) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed >= ticket; });
  }
  void loop() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closing || !pending.empty(); });
      if (pending.empty()) return;
      auto work = std::move(pending.front());
      pending.pop_front();
      lock.unlock();
      if (sticky == cudaSuccess) work();
      lock.lock();
      ++completed;
      changed.notify_all();
    }
  }
};

struct Event {
  Stream* stream = nullptr;
  uint64_t ticket = 0;
  Graph* graph = nullptr;  // that it was captured in
  int gpu = chosen_device;
  std::shared_ptr<std::chrono::steady_clock::time_point> reached;  // of an event with timing
};

namespace {

struct State {
  std::mutex mutex;
  Machine machine;
  std::map<std::string, int64_t> calls;
  std::map<std::string, std::pair<int64_t, cudaError_t>> failures;  // at which call
  std::map<std::string, std::function<void()>> hooks;
  std::map<uintptr_t, size_t> blocks, pinned;  // device memory, and host memory that the GPU reaches itself
  std::map<uintptr_t, int> gpus;               // whose the blocks are
  std::set<Stream*> streams;
  std::vector<std::unique_ptr<Stream>> closed;     // events may still ask how far they came
  std::map<std::string, int> nested, overlapping;  // ranges of NVTX, by name
  int open_ranges = 0;
  size_t used = 0;
  std::atomic<int64_t> alive{0};
};
State& state() {
  static State state;
  return state;
}
thread_local cudaError_t last_error = cudaSuccess;
thread_local int depth = 0;

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

// Counts a call; the error that it is to end with.
cudaError_t enter(const char* function) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  int64_t count = ++s.calls[function];
  if (auto hook = s.hooks.extract(function)) {
    lock.unlock();
    hook.mapped()();
    lock.lock();
  }
  auto failure = s.failures.find(function);
  if (failure != s.failures.end() && failure->second.first == count) {
    cudaError_t error = failure->second.second;
    s.failures.erase(failure);
    return report(error);
  }
  return sticky;
}

// How many bytes of one of these blocks begin at `data`; 0 for memory outside of them.
size_t bytes_left(const std::map<uintptr_t, size_t>& blocks, const void* data) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  auto it = blocks.upper_bound(begin);
  if (it == blocks.begin()) return 0;
  --it;
  uintptr_t end = it->first + it->second;
  return begin < end ? end - begin : 0;
}

// [data, data + bytes) is host memory or lies within one block.
bool within_bounds(const void* data, size_t bytes) {
  std::lock_guard lock(state().mutex);
  size_t left = bytes_left(state().blocks, data);
  return left == 0 || bytes <= left;
}

bool is_pageable(const void* data) {
  std::lock_guard lock(state().mutex);
  return bytes_left(state().blocks, data) == 0 && bytes_left(state().pinned, data) == 0;
}

void synchronize_all() {
  std::set<Stream*> streams;
  {
    std::lock_guard lock(state().mutex);
    streams = state().streams;
  }
  for (Stream* stream : streams) stream->wait(stream->newest());
}

}  // namespace

Machine& machine() { return state().machine; }
void reset() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.machine = {};
  s.calls.clear();
  s.failures.clear();
  s.hooks.clear();
  s.nested.clear();
  s.overlapping.clear();
  sticky = cudaSuccess;
  last_error = cudaSuccess;
}
void fail_call(const std::string& function, int nth, cudaError_t error) {
  std::lock_guard lock(state().mutex);
  state().failures[function] = {state().calls[function] + nth, error};
}
void on_call(const std::string& function, std::function<void()> hook) {
  std::lock_guard lock(state().mutex);
  state().hooks[function] = std::move(hook);
}
int64_t calls(const std::string& function) {
  std::lock_guard lock(state().mutex);
  return state().calls[function];
}
int64_t alive() { return state().alive; }
std::atomic<int>& heuristic_calls() {
  static std::atomic<int> count{0};
  return count;
}
std::atomic<int>& products() {
  static std::atomic<int> count{0};
  return count;
}
std::atomic<int>& copied() {
  static std::atomic<int> count{0};
  return count;
}
std::array<int, 5>& milliseconds_of_algorithms() {
  static std::array<int, 5> milliseconds{};
  return milliseconds;
}
std::atomic<int>& last_algorithm() {
  static std::atomic<int> number{0};
  return number;
}
int current_device() { return chosen_device; }
std::atomic<int>& computing_type() {
  static std::atomic<int> type{0};
  return type;
}
int open_ranges() { return depth; }
std::map<std::string, int> nested_ranges() {
  std::lock_guard lock(state().mutex);
  return state().nested;
}
std::map<std::string, int> overlapping_ranges() {
  std::lock_guard lock(state().mutex);
  return state().overlapping;
}
int open_overlapping_ranges() {
  std::lock_guard lock(state().mutex);
  return state().open_ranges;
}
int gpu_of(cudaStream_t stream) { return stream->gpu; }
int priority_of(cudaStream_t stream) { return stream->priority; }
int gpu_of(const void* memory) {
  std::lock_guard lock(state().mutex);
  if (bytes_left(state().blocks, memory) == 0) return -1;
  return std::prev(state().gpus.upper_bound(reinterpret_cast<uintptr_t>(memory)))->second;
}
void launch(cudaStream_t stream, std::function<void()> work, const std::vector<const void*>& operands) {
  if (stream->gpu != chosen_device) return refuse_launch(cudaErrorInvalidValue);
  for (const void* operand : operands)
    if (int gpu = gpu_of(operand); gpu >= 0 && gpu != stream->gpu) return launch_fault(stream, cudaErrorIllegalAddress);
  stream->push(std::move(work));
}
void launch_fault(cudaStream_t stream, cudaError_t error) {
  stream->push([error] { sticky = error; });
}
void refuse_launch(cudaError_t error) { last_error = error; }

static cudaError_t take(size_t bytes, void** data) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.used + bytes > s.machine.memory) return report(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  s.blocks[reinterpret_cast<uintptr_t>(*data)] = bytes;
  s.gpus[reinterpret_cast<uintptr_t>(*data)] = chosen_device;
  s.used += bytes;
  ++s.alive;
  return cudaSuccess;
}

static cudaError_t give(void* data) {
  fake_cuda::synchronize_all();
  State& s = state();
  std::lock_guard lock(s.mutex);
  auto it = s.blocks.find(reinterpret_cast<uintptr_t>(data));
  if (it == s.blocks.end()) return report(cudaErrorInvalidValue);
  s.used -= it->second;
  s.gpus.erase(it->first);
  s.blocks.erase(it);
  std::free(data);
  --s.alive;
  return cudaSuccess;
}

}  // namespace fake_cuda

using fake_cuda::enter;
using fake_cuda::machine;
using fake_cuda::report;
using fake_cuda::state;

int nvtxRangePushA(const char* name) {
  std::lock_guard lock(state().mutex);
  ++state().nested[name];
  return fake_cuda::depth++;
}
int nvtxRangePop() { return --fake_cuda::depth; }
nvtxRangeId_t nvtxRangeStartA(const char* name) {
  std::lock_guard lock(state().mutex);
  ++state().overlapping[name];
  return nvtxRangeId_t(++state().open_ranges);
}
void nvtxRangeEnd(nvtxRangeId_t) {
  std::lock_guard lock(state().mutex);
  --state().open_ranges;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    default:
      return "an error";
  }
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    default:
      return "cudaError";
  }
}
cudaError_t cudaGetLastError() {
  cudaError_t error = fake_cuda::last_error;
  fake_cuda::last_error = cudaSuccess;
  return fake_cuda::sticky != cudaSuccess ? fake_cuda::sticky.load() : error;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (machine().driver < 13000) return report(cudaErrorInsufficientDriver);
  if (machine().gpus == 0) return report(cudaErrorNoDevice);
  *count = machine().gpus;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  {
    std::lock_guard lock(state().mutex);
    ++state().calls["cudaGetDevice"];
  }
  *device = fake_cuda::chosen_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  {
    std::lock_guard lock(state().mutex);
    ++state().calls["cudaSetDevice"];
  }
  if (device >= machine().gpus) return report(cudaErrorInvalidValue);
  fake_cuda::chosen_device = device;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"pretended GPU", machine().capability / 10, machine().capability % 10, machine().memory};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int length, int device) {
  std::snprintf(address, size_t(length), "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  int capability = machine().capability;
  *value = what == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  cudaError_t error = enter("cudaMalloc");
  return error == cudaSuccess ? fake_cuda::take(bytes, data) : error;
}
cudaError_t cudaFree(void* data) {
  enter("cudaFree");
  return fake_cuda::give(data);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  cudaError_t error = enter("cudaHostAlloc");
  if (error != cudaSuccess) return error;
  if (!machine().pins) return report(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  std::lock_guard lock(state().mutex);
  state().pinned[reinterpret_cast<uintptr_t>(*data)] = bytes;
  ++state().alive;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  {
    std::lock_guard lock(state().mutex);
    state().pinned.erase(reinterpret_cast<uintptr_t>(data));
  }
  std::free(data);
  --state().alive;
  return enter("cudaFreeHost");
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  std::unique_lock lock(state().mutex);
  *total = machine().memory;
  *free = machine().memory - state().used;
  lock.unlock();
  return enter("cudaMemGetInfo");
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  cudaError_t error = enter("cudaMemcpyAsync");
  if (error != cudaSuccess) return error;
  if (!fake_cuda::within_bounds(to, bytes) || !fake_cuda::within_bounds(from, bytes))
    return report(cudaErrorInvalidValue);
  if (stream->graph && (fake_cuda::is_pageable(to) || fake_cuda::is_pageable(from)))
    return report(cudaErrorStreamCaptureUnsupported);
  uint64_t copied = stream->push([=] { std::memmove(to, from, bytes), ++fake_cuda::copied(); });
  if (fake_cuda::is_pageable(to)) stream->wait(copied);  // CUDA returns when it is there
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;  // as of a real one: the smaller the number, the sooner
  return enter("cudaDeviceGetStreamPriorityRange");
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  cudaError_t error = enter("cudaStreamCreateWithPriority");
  if (error != cudaSuccess) return error;
  *stream = new fake_cuda::Stream;
  (*stream)->priority = priority;
  std::lock_guard lock(state().mutex);
  state().streams.insert(*stream);
  ++state().alive;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->close();
  {
    std::lock_guard lock(state().mutex);
    state().streams.erase(stream);
    state().closed.emplace_back(stream);
    --state().alive;
  }
  return enter("cudaStreamDestroy");
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->graph) return report(cudaErrorStreamCaptureUnsupported);
  stream->wait(stream->newest());
  return enter("cudaStreamSynchronize");
}
cudaError_t cudaDeviceSynchronize() {
  fake_cuda::synchronize_all();
  return enter("cudaDeviceSynchronize");
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*call)(void*), void* data) {
  cudaError_t error = enter("cudaLaunchHostFunc");
  if (error == cudaSuccess) stream->push([=] { call(data); });
  return error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  cudaError_t error = enter("cudaStreamWaitEvent");
  if (error != cudaSuccess || !event->stream) return error;
  if (event->graph) {
    event->graph->unjoined.erase(event->stream);
    event->graph->streams.insert(stream);
    stream->graph = event->graph;
    return cudaSuccess;
  }
  if (stream->graph) return report(cudaErrorStreamCaptureIsolation);
  if (event->stream == stream) return cudaSuccess;
  stream->push([source = event->stream, ticket = event->ticket] { source->wait(ticket); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  cudaError_t error = enter("cudaEventCreateWithFlags");
  if (error != cudaSuccess) return error;
  *event = new fake_cuda::Event;
  if (flags == cudaEventDefault) (*event)->reached = std::make_shared<std::chrono::steady_clock::time_point>();
  ++state().alive;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --state().alive;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  cudaError_t error = enter("cudaEventRecord");
  if (error != cudaSuccess) return error;
  if (event->gpu != stream->gpu) return report(cudaErrorInvalidValue);
  if (event->reached) stream->push([reached = event->reached] { *reached = std::chrono::steady_clock::now(); });
  event->graph = stream->graph;
  event->stream = stream;
  event->ticket = stream->newest();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  cudaError_t error = enter("cudaEventElapsedTime");
  if (error != cudaSuccess) return error;
  if (!begin->reached || !end->reached || !end->stream) return cudaErrorInvalidValue;
  *milliseconds = std::chrono::duration<float, std::milli>(*end->reached - *begin->reached).count();
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  cudaError_t error = enter("cudaStreamBeginCapture");
  if (error != cudaSuccess) return error;
  stream->graph = new fake_cuda::Graph;
  stream->graph->streams.insert(stream);
  ++state().alive;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->graph;
  for (cudaStream_t each : (*graph)->streams) each->graph = nullptr;
  (*graph)->unjoined.erase(stream);
  cudaError_t error = enter("cudaStreamEndCapture");
  if (error == cudaSuccess && !(*graph)->unjoined.empty()) error = report(cudaErrorStreamCaptureUnjoined);
  if (error != cudaSuccess) cudaGraphDestroy(std::exchange(*graph, nullptr));
  return error;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  cudaError_t error = enter("cudaGraphInstantiate");
  if (error != cudaSuccess) return error;
  *ready = new fake_cuda::ReadyGraph{graph->work};
  ++state().alive;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
  cudaError_t error = enter("cudaGraphLaunch");
  if (error != cudaSuccess) return error;
  for (const auto& work : ready->work) stream->push(work);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
  delete ready;
  --state().alive;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  --state().alive;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->graph) return report(cudaErrorCapturedEvent);
  bool reached = !event->stream || event->stream->reached(event->ticket);  // before the fault that work may have left
  cudaError_t error = enter("cudaEventQuery");
  if (error != cudaSuccess) return error;
  return reached ? cudaSuccess : cudaErrorNotReady;
}
