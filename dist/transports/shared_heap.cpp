#include <shardgrad/dist/transports/shared_heap.h>

#include <unistd.h>

#include <algorithm>

#include <shardgrad/dist/os/board.h>

namespace shardgrad::dist {

static constexpr size_t kPage = 4096, kGrowth = size_t(4) << 20;
/// What every rank has from the start: bounce regions and boards of a few groups.
static constexpr size_t kFirstGrowth = size_t(2) << 20;

static size_t board_pages(int size) { return (Board::board_bytes(size) + kPage - 1) / kPage * kPage; }

void* HeapRegion::take(size_t bytes) {
  std::lock_guard lock(mutex_);
  bytes = rounded(bytes);
  auto offset = free_.take(bytes);
  if (!offset) {
    // The last free piece, if it ends at the top, is part of what is needed.
    size_t missing = bytes - free_.bytes_before(top_);
    if (!grow(top_ + std::max(missing, std::min(kGrowth, limit_ - top_)))) return nullptr;
    offset = free_.take(bytes);
  }
  return memory_->data() + begin_ + *offset;
}

void HeapRegion::give(void* data, size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  free_.give(size_t(static_cast<std::byte*>(data) - memory_->data()) - begin_, rounded(bytes));
}

bool HeapRegion::grow(size_t top) {
  top = (top + kPage - 1) / kPage * kPage;
  if (top > limit_ || !memory_->back(begin_ + top_, top - top_)) return false;
  free_.give(top_, top - top_);
  top_ = top;
  return true;
}

bool HeapRegion::grow_to(size_t bytes) {
  std::lock_guard lock(mutex_);
  return top_ >= bytes || grow(bytes);
}

std::string HeapRegion::remedy() const {
  return concat(" in the shared heap of this node (", top_, " of ", limit_,
                " bytes of this rank's region have memory); use fewer ranks, a smaller model, or the MPI group "
                "(SHARDGRAD_GROUP=mpi), which shares nothing");
}

size_t SharedHeap::region_bytes(int size, size_t machine) {
  constexpr size_t kAddresses = size_t(1) << 45;
  return std::min(machine, kAddresses / size_t(size)) / kPage * kPage;
}

size_t SharedHeap::heap_bytes(int size, size_t limit) {
  size_t machine = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
  size_t region = limit > 0 ? limit / kPage * kPage : region_bytes(size, machine);
  return board_pages(size) + size_t(size) * region;
}

SharedHeap::SharedHeap(std::shared_ptr<SharedMemory> memory, int rank, int size) : memory_(std::move(memory)) {
  size_t region = (memory_->bytes() - board_pages(size)) / size_t(size);
  region_ = std::make_shared<HeapRegion>(memory_, board_pages(size) + size_t(rank) * region, region);
  bool backed = memory_->back(0, board_pages(size)) && region_->grow_to(kFirstGrowth);
  if (!backed) fail_as(ErrorKind::missing, "shared memory: there is no room for ", kFirstGrowth, " bytes per rank");
}

bool SharedHeap::contains(const void* data, size_t bytes) const {
  auto begin = reinterpret_cast<uintptr_t>(data), base = reinterpret_cast<uintptr_t>(memory_->data());
  return begin >= base && begin + bytes <= base + memory_->bytes();
}

uint64_t SharedHeap::lend(size_t bytes, int holders) {
  std::erase_if(lent_, [this](const auto& loan) {
    if (loan.first->holders.load() > 0) return false;
    region_->give(loan.first, loan.second);
    return true;
  });
  void* memory = region_->take(bytes);
  if (!memory) return 0;
  auto* head = new (memory) CommonMemory::Head;
  head->holders.store(holders);
  lent_[head] = bytes;
  return offset_of(head);
}

Ref<Allocator> SharedHeap::allocator(Device device) {
  Ref<Allocator>& made = allocators_[device.kind];
  if (!made) {
    Reuse reuse = is_emulated(device.kind) ? Reuse::poisoned : Reuse::when_done;
    made = make_caching_allocator(device, reuse, region_);
  }
  return made;
}

std::shared_ptr<SharedHeap> make_shared_heap(Bootstrap& bootstrap, size_t limit, std::string& reason) {
  size_t bytes = SharedHeap::heap_bytes(bootstrap.local_size(), limit);
  auto memory = share_memory(bootstrap, "shardgrad-heap", bytes, reason);
  if (!memory) return nullptr;
  std::shared_ptr<SharedHeap> heap;
  std::string error;
  try {
    heap = std::make_shared<SharedHeap>(memory, bootstrap.local_rank(), bootstrap.local_size());
  } catch (const Error& e) {
    error = e.what();
  }
  if (error = bootstrap.any_error(error); !error.empty()) {
    reason = error;
    return nullptr;
  }
  return heap;
}

}  // namespace shardgrad::dist
