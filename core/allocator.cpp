#include <shardgrad/core/allocator.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <shardgrad/core/context.h>
#include <shardgrad/core/happens_before.h>

namespace shardgrad {
namespace {

constexpr size_t kMapThreshold = size_t(1) << 20;

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
 public:
  void* take(size_t bytes) override {
    if (bytes < kMapThreshold) return std::aligned_alloc(kAlignment, bytes);
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    madvise(data, bytes, MADV_HUGEPAGE);
    return data;
  }
  void give(void* data, size_t bytes) noexcept override {
    if (bytes < kMapThreshold)
      std::free(data);
    else
      munmap(data, bytes);
  }
};

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(Device device, Reuse reuse, std::shared_ptr<MemorySource> source)
      : Allocator(device), reuse_(reuse), source_(std::move(source)) {}
  ~CachingAllocator() override { trim(0); }

  Block allocate(size_t bytes, Stream& stream) override {
    size_t index = class_of(bytes), size = class_bytes(index);
    Event ready;
    void* data = take(index, stream, ready);
    if (!data) data = fresh(bytes, size);
    if (ready.state()) stream.wait(ready);
    return {data, bytes};
  }

  void free(Block block, Stream& stream) noexcept override {
    size_t index = class_of(block.bytes), size = class_bytes(index);
    if (reuse_ == Reuse::ordered) poison(block, stream);
    Event freed = stream.is_inline() ? Event() : stream.record();
    std::lock_guard lock(mutex_);
    if (free_.size() <= index) free_.resize(index + 1);
    free_[index].push_back({block.data, &stream, std::move(freed)});
    live_ -= size;
    cached_ += size;
  }

  void discard(Block block) noexcept override {
    size_t size = class_bytes(class_of(block.bytes));
    source_->give(block.data, size);
    std::lock_guard lock(mutex_);
    live_ -= size;
  }

 private:
  struct Cached {
    void* data;
    const Stream* stream;
    Event freed;
  };

  // A use of the memory that is not ordered before its release is a race; it ends every later wait of the context.
  static void poison(Block block, Stream& stream) noexcept try {
    Access access{block.data, block.bytes, true};
    stream.run("poison of freed memory", [block] { std::memset(block.data, 0xff, block.bytes); }, {&access, 1});
  } catch (...) {
    stream.context().abort(std::current_exception());
  }

  void* take(size_t index, Stream& stream, Event& ready) {
    std::lock_guard lock(mutex_);
    size_t size = class_bytes(index);
    if (index < free_.size()) {
      auto& list = free_[index];
      for (size_t i = list.size(); i-- > 0;) {
        Cached& entry = list[i];
        bool ordered = entry.stream == &stream || entry.freed.done();
        if (!ordered && reuse_ == Reuse::when_done) continue;
        if (entry.stream != &stream) ready = entry.freed;
        void* data = entry.data;
        list.erase(list.begin() + std::ptrdiff_t(i));
        cached_ -= size;
        grow(size);
        return data;
      }
    }
    grow(size);
    size_t limit = peak_ + peak_ / 10 + (size_t(16) << 20);
    if (live_ + cached_ > limit) trim(live_ + cached_ - limit > cached_ ? 0 : cached_ - (live_ + cached_ - limit));
    return nullptr;
  }

  void grow(size_t size) {
    live_ += size;
    peak_ = std::max(peak_, live_);
  }

  void* fresh(size_t bytes, size_t size) {
    void* data = source_->take(size);
    if (data) return data;
    std::lock_guard lock(mutex_);
    trim(0);
    if ((data = source_->take(size))) return data;
    live_ -= size;
    fail("out of memory: ", bytes, " bytes on ", device(), " cannot be allocated (", live_, " bytes in use)",
         source_->remedy());
  }

  // Returns cached blocks to the system, largest first, until at most `keep` bytes are cached. Blocks that a stream
  // has not finished with stay.
  void trim(size_t keep) {
    for (size_t index = free_.size(); index-- > 0 && cached_ > keep;) {
      auto& list = free_[index];
      for (size_t i = list.size(); i-- > 0 && cached_ > keep;) {
        if (!list[i].freed.done()) continue;
        if (Context* context = Context::current(); context && context->checker())
          context->checker()->forget(list[i].data, class_bytes(index));
        source_->give(list[i].data, class_bytes(index));
        cached_ -= class_bytes(index);
        list.erase(list.begin() + std::ptrdiff_t(i));
      }
    }
  }

  Reuse reuse_;
  std::shared_ptr<MemorySource> source_;
  std::mutex mutex_;
  std::vector<std::vector<Cached>> free_;
  size_t live_ = 0, cached_ = 0, peak_ = 0;
};

class NullAllocator final : public Allocator {
 public:
  using Allocator::Allocator;
  Block allocate(size_t bytes, Stream&) override { return {nullptr, bytes}; }
  void free(Block, Stream&) noexcept override {}
  void discard(Block) noexcept override {}
};

}  // namespace

std::shared_ptr<MemorySource> system_memory() { return std::make_shared<SystemMemory>(); }

Ref<Allocator> make_caching_allocator(Device device, Reuse reuse, std::shared_ptr<MemorySource> source) {
  return make_ref<CachingAllocator>(device, reuse, std::move(source));
}
Ref<Allocator> make_null_allocator(Device device) { return make_ref<NullAllocator>(device); }

}  // namespace shardgrad
