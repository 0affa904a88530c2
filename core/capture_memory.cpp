#include <shardgrad/core/capture_memory.h>

#include <algorithm>
#include <iterator>
#include <map>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>

namespace shardgrad {

// Knows what a pool has taken, so that a block is told by its address.
class CaptureMemory::Source final : public MemorySource {
 public:
  explicit Source(std::shared_ptr<MemorySource> of) : of_(std::move(of)) {}
  void* take(size_t bytes) override {
    void* data = of_->take(bytes);
    if (!data) return nullptr;
    std::lock_guard lock(mutex_);
    taken_[static_cast<std::byte*>(data)] = bytes;
    return data;
  }
  void give(void* data, size_t bytes) noexcept override {
    {
      std::lock_guard lock(mutex_);
      forget(static_cast<std::byte*>(data), static_cast<std::byte*>(data) + bytes);
    }
    of_->give(data, bytes);
  }
  size_t granularity() const override { return of_->granularity(); }
  int64_t requests() const override { return of_->requests(); }
  std::string remedy() const override { return of_->remedy() + "; a captured step has memory of its own beside it"; }

  bool is_empty() const {
    std::lock_guard lock(mutex_);
    return taken_.empty();
  }
  bool has(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    std::lock_guard lock(mutex_);
    auto after = taken_.upper_bound(const_cast<std::byte*>(at));
    return after != taken_.begin() && at < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  // What is given back may span neighbours, or be a part of what was taken.
  void forget(std::byte* begin, std::byte* end) {
    auto piece = taken_.upper_bound(begin);
    if (piece != taken_.begin()) --piece;
    while (piece != taken_.end() && piece->first < end) {
      auto [first, bytes] = *piece;
      std::byte* last = first + bytes;
      if (last <= begin) {
        ++piece;
        continue;
      }
      piece = taken_.erase(piece);
      if (first < begin) taken_[first] = size_t(begin - first);
      if (end < last) taken_[end] = size_t(last - end);
    }
  }
  std::shared_ptr<MemorySource> of_;
  mutable std::mutex mutex_;
  std::map<std::byte*, size_t> taken_;
};

struct CaptureMemory::Pool {
  std::shared_ptr<Source> source;
  Ref<Allocator> memory;
  std::vector<uintptr_t> used;    // where accesses begin, each within a block
  std::vector<MemoryBlock> held;  // blocks of others that were freed and wait for the capture to go
  std::shared_ptr<Ledger> ledger;
  size_t held_bytes = 0, entered = 0;  // bytes; in the ledger
  bool recording = true, gone = false;

  bool uses(const MemoryBlock& block) const {
    uintptr_t begin = reinterpret_cast<uintptr_t>(block.data), end = begin + block.bytes;
    if (recording) return std::ranges::any_of(used, [=](uintptr_t at) { return begin <= at && at < end; });
    auto first = std::ranges::lower_bound(used, begin);
    return first != used.end() && *first < end;
  }

  // What is kept from everybody else, and is no tensor's.
  void enter() {
    size_t bytes = gone ? 0 : held_bytes + (recording ? 0 : memory->kept());
    if (bytes > entered) ledger->add({Category::step_graph, 0}, bytes - entered);
    if (bytes < entered) ledger->sub({Category::step_graph, 0}, entered - bytes);
    entered = bytes;
  }
};

CaptureMemory::CaptureMemory(Ref<Allocator> own, Reuse reuse, std::shared_ptr<MemorySource> source, size_t large)
    : Allocator(own->device()), own_(std::move(own)), reuse_(reuse), source_(std::move(source)), large_(large) {}

CaptureMemory::~CaptureMemory() = default;

CaptureMemory::Pool& CaptureMemory::at(size_t pool) const {
  std::lock_guard lock(mutex_);
  return *pools_[pool];
}

MemoryBlock CaptureMemory::allocate(size_t bytes, Stream& stream) {
  Capture* capture = Capture::current();
  if (!capture || capture->device() != device()) [[likely]]
    return own_->allocate(bytes, stream);
  return at(capture->pool()).memory->allocate(bytes, stream);
}

void CaptureMemory::free(MemoryBlock block, Stream& stream) noexcept {
  if (!any_.load(std::memory_order_acquire)) [[likely]]
    return own_->free(block, stream);
  Capture* capture = Capture::current();
  bool captures = capture && capture->device() == device();
  Ref<Allocator> of = own_;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < pools_.size(); ++i) {
      Pool* pool = pools_[i].get();
      if (!pool) continue;
      if (pool->source->has(block.data)) {
        of = pool->memory;
        continue;  // another capture may use it
      }
      // What a step frees, whoever else uses it, is freed after it: no work of now may poison it.
      if (!pool->gone && (captures ? i == capture->pool() : pool->uses(block))) return hold(*pool, block);
    }
  }
  of->free(block, stream);
  tidy();
}

void CaptureMemory::hold(Pool& pool, const MemoryBlock& block) {
  pool.held.push_back(block);
  pool.held_bytes += block.bytes;
  pool.enter();
}

// Pools of captures that went give back what is no longer used, and go with their last block.
void CaptureMemory::tidy() noexcept {
  std::lock_guard lock(mutex_);
  bool any = false;
  for (auto& pool : pools_) {
    if (pool && pool->gone) {
      pool->memory->trim();
      if (pool->source->is_empty()) pool.reset();
    } else if (pool) {
      pool->enter();
    }
    any = any || pool;
  }
  any_.store(any, std::memory_order_release);
}

void CaptureMemory::discard(MemoryBlock block) noexcept {
  Ref<Allocator> of = own_;
  {
    std::lock_guard lock(mutex_);
    for (const auto& pool : pools_)
      if (pool && pool->source->has(block.data)) of = pool->memory;
  }
  of->discard(block);
}

size_t CaptureMemory::open() {
  own_->trim();  // steps as written, whose memory that is, hardly come any more
  auto pool = std::make_unique<Pool>();
  pool->source = std::make_shared<Source>(source_);
  pool->memory = make_growing_allocator(device(), reuse_, pool->source, large_);
  pool->ledger = context().shared_ledger();
  std::lock_guard lock(mutex_);
  any_.store(true, std::memory_order_release);
  auto free = std::ranges::find_if(pools_, [](const auto& other) { return !other; });
  if (free == pools_.end()) free = pools_.insert(free, nullptr);
  *free = std::move(pool);
  return size_t(free - pools_.begin());
}

void CaptureMemory::note(size_t pool, std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
  Pool& of = *pools_[pool];
  for (const Access& access : accesses)
    if (access.bytes > 0) of.used.push_back(reinterpret_cast<uintptr_t>(access.begin));
}

bool CaptureMemory::uses(size_t pool, const MemoryBlock& block) const {
  std::lock_guard lock(mutex_);
  return pools_[pool]->uses(block);
}

bool CaptureMemory::has(size_t pool, const void* data) const { return at(pool).source->has(data); }

size_t CaptureMemory::dropped(size_t pool) const {
  std::lock_guard lock(mutex_);
  const Pool& of = *pools_[pool];
  auto found = std::ranges::find_if(of.held, [&of](const MemoryBlock& block) { return of.uses(block); });
  return found == of.held.end() ? 0 : found->bytes;
}

void CaptureMemory::close(size_t pool, Stream& stream) noexcept {
  Pool& of = at(pool);
  std::vector<MemoryBlock> held;
  {
    std::lock_guard lock(mutex_);
    std::ranges::sort(of.used);
    of.used.erase(std::unique(of.used.begin(), of.used.end()), of.used.end());
    of.recording = false;
    of.held_bytes = 0;
    held.swap(of.held);
  }
  for (const MemoryBlock& block : held) free(block, stream);  // which holds back what the step uses
  tidy();
}

void CaptureMemory::end(size_t pool, Stream& stream) noexcept {
  Pool& of = at(pool);
  std::vector<MemoryBlock> held;
  {
    std::lock_guard lock(mutex_);
    of.gone = true;
    of.recording = false;
    of.used.clear();
    of.enter();
    held.swap(of.held);
  }
  for (const MemoryBlock& block : held) free(block, stream);
  tidy();
}

}  // namespace shardgrad
