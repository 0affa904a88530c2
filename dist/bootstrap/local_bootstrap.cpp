#include <algorithm>
#include <cstring>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/os/board.h>

namespace shardgrad::dist {
namespace {

// One rank's blob, or the current piece of it.
struct alignas(128) Mailbox {
  static constexpr size_t kRoom = 4096 - 8;
  uint64_t length;  // of the whole blob
  char text[kRoom];
};

class LocalBootstrap final : public Bootstrap {
 public:
  LocalBootstrap(std::string name, std::shared_ptr<void> memory, int rank, int size)
      : Bootstrap(std::move(name), rank, size, RankMap(std::vector<std::string>(size_t(size), "here"))),
        board_(memory, rank, size),
        boxes_(reinterpret_cast<Mailbox*>(static_cast<std::byte*>(memory.get()) + Board::board_bytes(size))) {}

  std::vector<std::string> exchange(const std::string& mine) override {
    std::vector<std::string> all(static_cast<size_t>(size()));
    size_t done = 0, longest = 0;
    do {
      Mailbox& box = boxes_[rank()];
      box.length = mine.size();
      if (done < mine.size()) std::memcpy(box.text, mine.data() + done, std::min(Mailbox::kRoom, mine.size() - done));
      board_.meet(check);
      for (int r = 0; r < size(); ++r) {
        size_t length = boxes_[r].length;
        longest = std::max(longest, length);
        if (done < length) all[size_t(r)].append(boxes_[r].text, std::min(Mailbox::kRoom, length - done));
      }
      board_.meet(check);
      done += Mailbox::kRoom;
    } while (done < longest);
    return all;
  }

 private:
  static void check() {
    if (Context* context = Context::current()) context->check_abort();
  }
  Board board_;
  Mailbox* boxes_;
};

}  // namespace

size_t local_bootstrap_bytes(int size) { return Board::board_bytes(size) + size_t(size) * sizeof(Mailbox); }

std::unique_ptr<Bootstrap> make_local_bootstrap(std::string name, std::shared_ptr<void> memory, int rank, int size) {
  return std::make_unique<LocalBootstrap>(std::move(name), std::move(memory), rank, size);
}

}  // namespace shardgrad::dist
