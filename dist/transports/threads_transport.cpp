#include <cstdlib>
#include <cstring>

#include <shardgrad/dist/transports/direct_transport.h>
#include <shardgrad/dist/transports/transports.h>

namespace shardgrad::dist {
namespace {

std::shared_ptr<void> make_board(int size) {
  size_t bytes = Board::board_bytes(size);
  std::shared_ptr<void> memory(std::aligned_alloc(alignof(Seat), bytes), std::free);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

class ThreadsTransport final : public DirectTransport {
 public:
  using DirectTransport::DirectTransport;

  int64_t invite(int size) override {
    std::shared_ptr<void>& invitation = invitations_[invited_++ % 2];
    invitation = make_board(size);
    return int64_t(reinterpret_cast<uintptr_t>(&invitation));
  }
  std::unique_ptr<Transport> join(int64_t invitation, const std::vector<int>& members, int rank) override {
    auto board = *reinterpret_cast<const std::shared_ptr<void>*>(uintptr_t(invitation));
    return make_threads_transport(board, rank, int(members.size()), shared_control());
  }

 protected:
  bool offer(const void* data, size_t, uint64_t& place) const override {
    place = uint64_t(reinterpret_cast<uintptr_t>(data));
    return true;
  }
  const std::byte* resolve(int, uint64_t place) const override {
    return reinterpret_cast<const std::byte*>(uintptr_t(place));
  }

 private:
  // Boards of the groups that this rank leads, in turn: where one could not be made after all, this rank may invite to
  // the next while a member is still joining, but to no third before that one has come to the next.
  std::shared_ptr<void> invitations_[2];
  uint32_t invited_ = 0;
};

}  // namespace

std::unique_ptr<DirectTransport> make_threads_transport(std::shared_ptr<void> board, int rank, int size,
                                                        std::shared_ptr<Control> control) {
  return std::make_unique<ThreadsTransport>("threads", std::move(board), rank, size, std::move(control));
}

}  // namespace shardgrad::dist
