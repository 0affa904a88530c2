#include <shardgrad/core/cuda/memory.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/cuda/error.h>
#include <shardgrad/core/cuda/launching.h>
#include <shardgrad/core/happens_before.h>

namespace shardgrad {

// Blocks begin where the driver's own would. A gap after each chunk keeps chunks that happen to be neighbours apart:
// a block across two of them could not be copied in one call.
static constexpr size_t kStep = 256, kGap = 256;
static size_t rounded(size_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

CudaArena::~CudaArena() {
  for (const Chunk& chunk : chunks_) hand_back(chunk.begin);
}

// Null when the driver has no more.
void* CudaArena::ask(size_t bytes) {
  void* data = nullptr;
  ++requests_;
  use_gpu(device_);
  cudaError_t status =
      kind_ == Kind::device ? cudaMalloc(&data, bytes) : cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (status == cudaSuccess) return data;
  if (status != cudaErrorMemoryAllocation) throw_cuda(status, concat("asking for ", bytes, " bytes of memory"));
  cudaGetLastError();  // forget it: a later launch must not be blamed
  return nullptr;
}

// An error here has been reported by somebody, or the process ends and the driver has gone already.
void CudaArena::hand_back(uintptr_t begin) const noexcept {
  void* data = reinterpret_cast<void*>(begin);
  if (kind_ == Kind::device)
    cudaFree(data);
  else
    cudaFreeHost(data);
}

bool CudaArena::grow(size_t bytes) {
  for (size_t size : {std::max(bytes, chunk_), bytes})
    if (void* data = ask(size + kGap)) {
      chunks_.push_back({reinterpret_cast<uintptr_t>(data), size});
      free_.give(chunks_.back().begin, size);
      return true;
    }
  return false;
}

void CudaArena::release_unused() noexcept {
  std::erase_if(chunks_, [this](const Chunk& chunk) {
    if (!free_.take_at(chunk.begin, chunk.bytes)) return false;
    hand_back(chunk.begin);
    return true;
  });
}

void* CudaArena::take(size_t bytes) {
  std::lock_guard lock(mutex_);
  bytes = rounded(bytes);
  auto place = free_.take(bytes);
  if (!place) {
    bool grown = grow(bytes);
    if (!grown) {
      release_unused();
      grown = grow(bytes);
    }
    if (!grown) return nullptr;
    place = free_.take(bytes);
  }
  return reinterpret_cast<void*>(*place);
}

void CudaArena::give(void* data, size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  free_.give(reinterpret_cast<uintptr_t>(data), rounded(bytes));
}

void* CudaArena::take_alone(size_t bytes) {
  std::lock_guard lock(mutex_);
  return ask(bytes);
}

void CudaArena::give_alone(void* data) noexcept { hand_back(reinterpret_cast<uintptr_t>(data)); }

int64_t CudaArena::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

std::string CudaArena::remedy() const {
  if (kind_ == Kind::pinned_host) return "; the host cannot pin more memory";
  size_t free = 0, total = 0, held = 0;
  cudaMemGetInfo(&free, &total);
  std::lock_guard lock(mutex_);
  for (const Chunk& chunk : chunks_) held += chunk.bytes;
  return concat("; the GPU has ", free, " of ", total, " bytes free, and this process holds ", held,
                " of them: use a smaller batch, more ranks, or strategy zero3");
}

MemoryBlock WatchedAllocator::allocate(size_t bytes, Stream&) {
  void* data = arena_->take_alone(bytes);
  if (!data) throw_out_of_memory(bytes, device(), live_, *arena_);
  live_ += bytes;
  return {data, bytes};
}

void WatchedAllocator::free(MemoryBlock block, Stream& stream) noexcept {
  if (stream.native()) cudaStreamSynchronize(static_cast<cudaStream_t>(stream.native()));
  discard(block);
}

void WatchedAllocator::discard(MemoryBlock block) noexcept {
  if (Context* context = Context::current(); context && context->checker())
    context->checker()->forget(block.data, block.bytes);
  live_ -= block.bytes;
  arena_->give_alone(block.data);
}

}  // namespace shardgrad
