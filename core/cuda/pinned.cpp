#include <shardgrad/core/cuda/pinned.h>

#include <algorithm>

#include <shardgrad/core/context.h>
#include <shardgrad/core/happens_before.h>

namespace shardgrad {
namespace {

class AllEvents final : public Event::State {
 public:
  explicit AllEvents(std::vector<Event> events) : events_(std::move(events)) {}
  bool done() const override {
    return std::ranges::all_of(events_, [](const Event& event) { return event.done(); });
  }
  void host_wait() const override {
    for (const Event& event : events_) event.host_wait();
  }

 private:
  std::vector<Event> events_;
};

// All streams of a GPU, for recording only.
class EveryStream final : public Stream {
 public:
  EveryStream(Context& context, std::shared_ptr<CudaEventPool> pool)
      : Stream(context, "every stream of the GPU", false), pool_(std::move(pool)) {}
  Event record() override {
    std::vector<Event> events = pool_->record_all();
    HappensBefore* checker = checked_ ? context_.checker() : nullptr;
    if (checker)
      for (const Event& event : events)
        if (event.state()) checker->wait(id_, event.state()->clock);  // none of a stream that is captured
    Ref<AllEvents> state = make_ref<AllEvents>(std::move(events));
    if (checker) state->clock = checker->record(id_);
    return Event(std::move(state));
  }
  void wait(const Event&) override { fail_as(ErrorKind::internal, name(), " cannot wait"); }

 private:
  std::shared_ptr<CudaEventPool> pool_;
};

class PinnedAllocator final : public Allocator {
 public:
  PinnedAllocator(Context& context, std::shared_ptr<CudaEventPool> pool, std::shared_ptr<CudaArena> arena)
      : Allocator(kCpu),
        every_(context, std::move(pool)),
        cache_(make_caching_allocator(kCpu, Reuse::when_done, std::move(arena))) {}
  MemoryBlock allocate(size_t bytes, Stream& stream) override { return cache_->allocate(bytes, stream); }
  void free(MemoryBlock block, Stream& stream) noexcept override {
    cache_->free(block, stream.is_inline() ? every_ : stream);
  }
  void discard(MemoryBlock block) noexcept override { cache_->discard(block); }

 private:
  EveryStream every_;
  Ref<Allocator> cache_;
};

}  // namespace

Ref<Allocator> make_pinned_allocator(Context& context, std::shared_ptr<CudaEventPool> pool,
                                     std::shared_ptr<CudaArena> arena) {
  return make_ref<PinnedAllocator>(context, std::move(pool), std::move(arena));
}

}  // namespace shardgrad
