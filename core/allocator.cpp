#include <shardgrad/core/allocator.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/chunk_pool.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/happens_before.h>
#include <shardgrad/core/memory_apart.h>
#include <shardgrad/core/poison.h>

namespace shardgrad {
namespace {

constexpr size_t kLarge = size_t(1) << 20;  // bytes; from here on blocks come from chunks

// Size classes: multiples of 64 up to 1 KiB, then eight per octave (at most 12.5 % larger than asked for).
size_t class_of(size_t bytes) {
  if (bytes <= 1024) return (bytes + 63) / 64;
  int octave = int(std::bit_width(bytes - 1)) - 1;  // bytes in (2^octave, 2^(octave+1)]
  size_t step = size_t(1) << (octave - 3);
  return 16 + size_t(octave - 10) * 8 + (bytes - (size_t(1) << octave) + step - 1) / step;
}

size_t class_bytes(size_t index) {
  if (index <= 16) return index * 64;
  size_t octave = 10 + (index - 17) / 8, eighth = (index - 17) % 8 + 1;
  return (size_t(1) << octave) + eighth * (size_t(1) << (octave - 3));
}

class SystemMemory final : public MemorySource {
  // Whole pages are mapped, whatever their number: pieces of a mapping come back one by one.
  static bool mapped(size_t bytes) { return bytes % ChunkPool::kGrain == 0; }

 public:
  size_t granularity() const override { return size_t(32) << 20; }  // pages nobody touches cost nothing
  void* take(size_t bytes) override {
    if (!mapped(bytes)) return std::aligned_alloc(kAlignment, bytes);
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    madvise(data, bytes, MADV_HUGEPAGE);
    return data;
  }
  void give(void* data, size_t bytes) noexcept override {
    if (!mapped(bytes))
      std::free(data);
    else
      munmap(data, bytes);
  }
};

// Pages that nobody touches cost nothing; huge ones would bring those behind a block into memory.
class MemoryApart final : public MemorySource {
  static size_t mapped(size_t bytes) {
    return (bytes + ChunkPool::kGrain - 1) / ChunkPool::kGrain * ChunkPool::kGrain + kApart;
  }

 public:
  void* take(size_t bytes) override {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* data = mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    madvise(data, mapped(bytes), MADV_NOHUGEPAGE);
    return data;
  }
  void give(void* data, size_t bytes) noexcept override { munmap(data, mapped(bytes)); }
};

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(Device device, Reuse reuse, std::shared_ptr<MemorySource> source, size_t large = kLarge,
                   bool grows = false)
      : Allocator(device), reuse_(reuse), source_(std::move(source)), large_(large), grows_(grows), chunks_(reuse) {}
  ~CachingAllocator() override { shrink(0); }

  MemoryBlock allocate(size_t bytes, Stream& stream) override {
    Event wait;
    void* data = find(bytes, stream, wait);
    if (!data && !grows_ && !running_stream()) {  // running work may not wait: some of it is what would be waited for
      wait_for_frees();
      data = find(bytes, stream, wait);
    }
    if (!data) throw_out_of_memory(bytes, device(), in_use(), *source_);
    if (wait.state()) stream.wait(wait.recorded());
    return {data, bytes, &stream};
  }

  void free(MemoryBlock block, Stream& stream) noexcept override {
    if (reuse_ == Reuse::poisoned) poison(block, stream);
    bool over = stream.is_inline();
    std::lock_guard lock(mutex_);  // before the event: a chunk's latest event is the last of all
    // Another stream will ask for what came from it, and is not to wait for more than it must.
    bool seldom_asked = block.stream == &stream && reuse_ != Reuse::when_done;
    Event freed = over ? Event() : seldom_asked ? stream.mark() : stream.record();
    size_t size = rounded(block.bytes);
    live_ -= size;
    if (size >= large_) return chunks_.put(block.data, size, over ? nullptr : &stream, std::move(freed));
    size_t index = class_of(block.bytes);
    if (free_.size() <= index) free_.resize(index + 1);
    free_[index].push_back({block.data, &stream, std::move(freed)});
    cached_ += size;
  }

  void discard(MemoryBlock block) noexcept override {
    std::lock_guard lock(mutex_);
    size_t size = rounded(block.bytes);
    live_ -= size;
    if (size >= large_) return chunks_.put(block.data, size, nullptr, {});
    source_->give(block.data, size);
  }

  size_t kept() const override {
    std::lock_guard lock(mutex_);
    return cached_ + chunks_.bytes();
  }

  void trim() noexcept override {
    std::lock_guard lock(mutex_);
    shrink(0);
  }

 private:
  struct Cached {
    void* data;
    const Stream* stream;
    Event freed;
  };

  size_t rounded(size_t bytes) const {
    if (bytes < large_) return class_bytes(class_of(bytes));
    return (bytes + ChunkPool::kGrain - 1) / ChunkPool::kGrain * ChunkPool::kGrain;
  }

  // A use of the memory that is not ordered before its release is a race; it ends every later wait of the context.
  // Another device's memory is no part of a step that is captured.
  void poison(MemoryBlock block, Stream& stream) noexcept try {
    Capture* capture = Capture::current();
    OutsideCapture outside(capture && capture->device() != device());
    Access access{block.data, block.bytes, true};
    stream.run("poison of freed memory", [block] { poison_bytes(block.data, block.bytes); }, {&access, 1});
  } catch (...) {
    stream.context().abort(std::current_exception());
  }

  // Null when neither what is kept nor the source has it.
  void* find(size_t bytes, Stream& stream, Event& wait) {
    std::lock_guard lock(mutex_);
    size_t size = rounded(bytes);
    void* data = reuse(bytes, stream, wait);
    if (!data) data = fresh(bytes, size, stream, wait);
    if (!data) return nullptr;
    live_ += size;
    peak_ = std::max(peak_, live_);
    return data;
  }

  size_t in_use() {
    std::lock_guard lock(mutex_);
    return live_;
  }

  // Waits until nobody uses freed blocks any more.
  void wait_for_frees() {
    std::vector<Event> pending;
    {
      std::lock_guard lock(mutex_);
      chunks_.collect_pending(pending);
      for (const auto& list : free_)
        for (const Cached& entry : list)
          if (!entry.freed.done()) pending.push_back(entry.freed);
    }
    for (const Event& event : pending) event.host_wait();
  }

  void* reuse(size_t bytes, Stream& stream, Event& wait) {
    size_t size = rounded(bytes);
    // Work that is running asks for itself: what its own stream frees is freed behind it, and it waits for nobody.
    bool running = running_stream() == &stream;
    if (size >= large_) return chunks_.take(size, stream, running, wait);
    size_t index = class_of(bytes);
    if (index >= free_.size()) return nullptr;
    auto& list = free_[index];
    for (size_t i = list.size(); i-- > 0;) {
      Cached& entry = list[i];
      bool ordered = !running && (entry.stream == &stream || reuse_ != Reuse::when_done);
      if (!ordered && !entry.freed.done()) continue;  // asking a GPU costs more
      if (entry.stream != &stream) wait = entry.freed;
      void* data = entry.data;
      list.erase(list.begin() + std::ptrdiff_t(i));
      cached_ -= size;
      return data;
    }
    return nullptr;
  }

  void* fresh(size_t bytes, size_t size, Stream& stream, Event& wait) {
    size_t live = live_ + size, peak = std::max(peak_, live);
    size_t limit = peak + peak / 10 + (size_t(16) << 20), held = cached_ + chunks_.bytes();
    if (!grows_ && live + held > limit) shrink(limit > live ? limit - live : 0);
    if (void* data = take(bytes, size, stream, wait); data || grows_) return data;
    shrink(0);
    return take(bytes, size, stream, wait);
  }

  void* take(size_t bytes, size_t size, Stream& stream, Event& wait) {
    bool poisoned = reuse_ == Reuse::poisoned;
    size_t asked = size < large_ || poisoned ? size : std::max(size, source_->granularity());
    void* data = source_->take(asked);
    if (!data && asked > size) data = source_->take(asked = size);
    if (!data) return nullptr;
    if (poisoned) poison_bytes(data, asked);
    if (size < large_) return data;
    chunks_.add(data, asked);
    return reuse(bytes, stream, wait);
  }

  // Returns cached blocks to the source, largest first, until at most `keep` bytes are cached. Blocks that a stream
  // has not finished with stay.
  void shrink(size_t keep) {
    auto forget = [](void* data, size_t bytes) {
      if (Context* context = Context::current(); context && context->checker()) context->checker()->forget(data, bytes);
    };
    chunks_.shrink(keep > cached_ ? keep - cached_ : 0, *source_, forget);
    for (size_t index = free_.size(); index-- > 0 && cached_ + chunks_.bytes() > keep;) {
      auto& list = free_[index];
      for (size_t i = list.size(); i-- > 0 && cached_ + chunks_.bytes() > keep;) {
        if (!list[i].freed.done()) continue;
        forget(list[i].data, class_bytes(index));
        source_->give(list[i].data, class_bytes(index));
        cached_ -= class_bytes(index);
        list.erase(list.begin() + std::ptrdiff_t(i));
      }
    }
  }

  Reuse reuse_;
  std::shared_ptr<MemorySource> source_;
  const size_t large_;  // bytes; from here on blocks come from chunks
  const bool grows_;    // and gives nothing back by itself
  mutable std::mutex mutex_;
  ChunkPool chunks_;
  std::vector<std::vector<Cached>> free_;  // small blocks by size class
  size_t live_ = 0, cached_ = 0, peak_ = 0;
};

class NullAllocator final : public Allocator {
 public:
  using Allocator::Allocator;
  MemoryBlock allocate(size_t bytes, Stream&) override { return {nullptr, bytes}; }
  void free(MemoryBlock, Stream&) noexcept override {}
  void discard(MemoryBlock) noexcept override {}
};

}  // namespace

std::shared_ptr<MemorySource> system_memory() { return std::make_shared<SystemMemory>(); }

void throw_out_of_memory(size_t bytes, Device device, size_t in_use, const MemorySource& source) {
  Context* context = Context::current();
  std::string owners = context ? context->ledger().largest_owners(4) : "";
  throw OutOfMemory(concat("out of memory: ", bytes, " bytes on ", device, " cannot be allocated (", in_use,
                           " bytes in use)", source.remedy(), owners.empty() ? "" : "; the largest owners: ", owners));
}

Ref<Allocator> make_caching_allocator(Device device, Reuse reuse, std::shared_ptr<MemorySource> source) {
  return make_ref<CachingAllocator>(device, reuse, std::move(source));
}
Ref<Allocator> make_growing_allocator(Device device, Reuse reuse, std::shared_ptr<MemorySource> source, size_t large) {
  return make_ref<CachingAllocator>(device, reuse, std::move(source), large ? large : kLarge, true);
}
std::shared_ptr<MemorySource> memory_apart() { return std::make_shared<MemoryApart>(); }
Ref<Allocator> make_allocator_apart(Device device, Reuse reuse) {
  return make_ref<CachingAllocator>(device, reuse, memory_apart(), kNeverCut);
}
Ref<Allocator> make_null_allocator(Device device) { return make_ref<NullAllocator>(device); }

}  // namespace shardgrad
