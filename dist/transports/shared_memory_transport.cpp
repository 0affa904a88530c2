#include <cstring>

#include <shardgrad/core/context.h>
#include <shardgrad/core/storage.h>
#include <shardgrad/dist/transports/direct_transport.h>
#include <shardgrad/dist/transports/transports.h>

namespace shardgrad::dist {
namespace {

class SharedMemoryTransport final : public DirectTransport {
 public:
  SharedMemoryTransport(std::shared_ptr<SharedHeap> heap, std::shared_ptr<void> board, int rank, int size,
                        std::shared_ptr<Control> control)
      : DirectTransport("shared_memory", std::move(board), rank, size, std::move(control)),
        heap_(std::move(heap)),
        bounce_(Storage::make(kBounceBytes, heap_->allocator(kCpu), {Category::communication, 0})) {
    this->board().mine().bounce.store(heap_->offset_of(bounce_->data()));
    slots_ = heap_->region()->take(2 * kSlotBytes);
    SG_CHECK(slots_, "group: out of memory", heap_->region()->remedy());
    use_slots(static_cast<std::byte*>(slots_));
  }
  ~SharedMemoryTransport() override {
    if (!has_withdrawn()) heap_->region()->give(slots_, 2 * kSlotBytes);
  }

  Ref<Allocator> memory(Device device) override {
    return device.kind == DeviceKind::meta ? Transport::memory(device) : heap_->allocator(device);
  }

  bool has_common_memory() const override { return true; }
  int64_t lend(size_t bytes) override { return int64_t(heap_->lend(CommonMemory::bytes_of(size(), bytes), size())); }
  std::shared_ptr<CommonMemory> borrow(int64_t loan, size_t bytes) override {
    std::shared_ptr<void> memory = heap_->share(uint64_t(loan));
    return std::make_shared<CommonMemory>(std::static_pointer_cast<CommonMemory::Head>(memory), rank(), size(), bytes);
  }

  // The board stays when the group goes: peers may still look at it.
  int64_t invite(int size) override {
    void* board = heap_->region()->take(Board::board_bytes(size));
    SG_CHECK(board, "split: out of memory", heap_->region()->remedy());
    std::memset(board, 0, Board::board_bytes(size));
    return int64_t(heap_->offset_of(board));
  }
  std::unique_ptr<Transport> join(int64_t invitation, const std::vector<int>& members, int rank) override {
    return std::make_unique<SharedMemoryTransport>(heap_, heap_->share(uint64_t(invitation)), rank, int(members.size()),
                                                   shared_control());
  }

 protected:
  bool offer(const void* data, size_t bytes, uint64_t& place) const override {
    if (!heap_->contains(data, bytes)) return false;
    place = heap_->offset_of(data);
    return true;
  }
  const std::byte* resolve(int, uint64_t place) const override { return heap_->at(place); }
  std::byte* bounce(int peer) const override { return heap_->at(board().seat(peer).bounce.load()); }
  size_t bounce_bytes() const override { return kBounceBytes; }

 private:
  std::shared_ptr<SharedHeap> heap_;
  Ref<Storage> bounce_;
  void* slots_;
};

}  // namespace

std::unique_ptr<DirectTransport> make_shared_memory_transport(std::shared_ptr<SharedHeap> heap, int rank, int size,
                                                              std::shared_ptr<Control> control) {
  auto board = heap->world_board();
  return std::make_unique<SharedMemoryTransport>(std::move(heap), std::move(board), rank, size, std::move(control));
}

}  // namespace shardgrad::dist
