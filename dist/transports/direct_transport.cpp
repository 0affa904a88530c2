#include <shardgrad/dist/transports/direct_transport.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/dist/transports/tree_sum.h>

namespace shardgrad::dist {

DirectTransport::DirectTransport(std::string kind, std::shared_ptr<void> board, int rank, int size,
                                 std::shared_ptr<Control> control)
    : Transport(std::move(kind), rank, size, std::move(control)),
      board_(std::move(board), rank, size),
      sources_(size_t(size)),
      pieces_(size_t(size)) {}

void DirectTransport::meet() {
  board_.meet([this] { check(); });
}

// Offers `mine` and learns where everybody's buffer is. True when some rank has to stage.
bool DirectTransport::open(const Call& call, const void* mine, size_t bytes, uint64_t whole) {
  size_t parity = ++calls_ % 2;
  lane_ = call.lane;
  Offer& my_offer = board_.mine().offers[parity];
  uint64_t place = 0;
  bool copied = slot_bytes() > 0 && whole == 0 && (!mine || bytes <= slot_bytes());
  if (mine && copied && bytes > 0) mine = std::memcpy(my_slot(), mine, bytes);
  bool staged = mine && bytes > 0 && !offer(mine, bytes, place);
  my_offer.fingerprint.store(call.fingerprint, std::memory_order_relaxed);
  my_offer.place.store(place, std::memory_order_relaxed);
  my_offer.whole.store(whole, std::memory_order_relaxed);
  my_offer.staged.store(staged, std::memory_order_relaxed);
  my_offer.copied.store(copied, std::memory_order_relaxed);
  meet();
  bool any_staged = false;
  all_in_place_ = whole != 0;
  all_copied_ = true;
  for (int r = 0; r < size(); ++r) {
    const Offer& theirs = board_.seat(r).offers[parity];
    if (theirs.fingerprint.load(std::memory_order_relaxed) != call.fingerprint) control().throw_diverged(call.lane);
    bool is_staged = theirs.staged.load(std::memory_order_relaxed);
    sources_[size_t(r)] = is_staged ? nullptr : resolve(r, theirs.place.load(std::memory_order_relaxed));
    any_staged |= is_staged;
    all_in_place_ &= theirs.whole.load(std::memory_order_relaxed) == whole;
    all_copied_ &= theirs.copied.load(std::memory_order_relaxed) != 0;
  }
  return any_staged;
}

void DirectTransport::begin_reading() {
  board_.mine().reading.store(1);
  for (int r = 0; r < size(); ++r)
    if (board_.seat(r).withdrawn.load()) {
      end_reading();
      await_cause();
    }
}

// A peer has given up the collective. Why is known in a moment: from itself, or from the monitor, which sees it leave.
void DirectTransport::await_cause() {
  for (;; usleep(200)) check();
}

// Returns when over(seat) is true of each peer's; one that is lost reads no more.
template <class Over> void DirectTransport::await_readers(Over&& over) const noexcept {
  constexpr int kLook = 1000;  // so many rounds of 20 us
  for (int r = 0; r < size(); ++r)
    for (int round = 1; r != rank() && !over(board_.seat(r)); ++round) {
      int member = members_.empty() ? r : members_[size_t(r)];
      if (round % kLook == 0 && control().is_lost(lane_, member)) break;
      usleep(20);
    }
}

void DirectTransport::withdraw() noexcept {
  end_reading();
  board_.mine().withdrawn.store(1);
  await_readers([](const Seat& seat) { return seat.reading.load() == 0; });
}

void DirectTransport::leave() {
  if (has_withdrawn()) return;
  await_readers([this](const Seat& seat) {
    return int32_t(seat.read.load(std::memory_order_acquire) - copied_call_) >= 0 || seat.withdrawn.load();
  });
}

const std::byte* DirectTransport::piece(int peer, int part, Round round) const {
  const std::byte* source = sources_[size_t(peer)];
  if (source) return source + size_t(part) * part_bytes_ + round.begin;
  return bounce(peer) + size_t(part) * (round.end - round.begin);
}

// A rank that shows nothing in particular shows all parts.
void DirectTransport::stage(const View& view, Round round) const {
  auto one = [&](int part) {
    size_t begin = std::min(view.total, size_t(part) * view.stride + round.begin);
    size_t end = std::min(view.total, size_t(part) * view.stride + round.end);
    std::memcpy(bounce(rank()) + size_t(part) * (round.end - round.begin),
                static_cast<const std::byte*>(view.mine) + begin, end - begin);
  };
  for (int part : view.shown) one(part);
  for (int part = 0; view.shown.empty() && part < view.parts; ++part) one(part);
}

// `read` looks at the peers' pieces of one round.
template <class Read>
void DirectTransport::rounds(const Call& call, const View& view, Read&& read, uint64_t whole) try {
  part_bytes_ = view.stride;
  bool any_staged = open(call, view.mine, view.total, whole);
  if (all_in_place_) return;  // nobody reads, so nobody is waited for
  if (all_copied_) {          // and a copy stays, though its rank may withdraw
    copied_call_ = calls_;
    read(Round{view.begin, view.end});
    return board_.mine().read.store(calls_, std::memory_order_release);
  }
  size_t step = any_staged ? bounce_bytes() / size_t(view.parts) : view.end - view.begin;
  if (any_staged) step -= step % (step < 64 ? 8 : 64);
  Round round{view.begin, view.begin};
  do {
    round = {round.end, std::min(view.end, round.end + step)};
    if (any_staged) {
      if (!sources_[size_t(rank())]) stage(view, round);
      meet();
    }
    begin_reading();
    read(round);
    end_reading();
    meet();
  } while (round.end < view.end);
} catch (...) {
  withdraw();
  throw;
}

void DirectTransport::look(const Call& call, const View& view, const Visit& visit) {
  rounds(call, view, [&](Round round) {
    visit([&](int peer, int part) { return piece(peer, part, round); }, round.begin, round.end);
  });
}

static void copy(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

uint64_t DirectTransport::whole_of(const void* full, const void* shard, size_t bytes) const {
  uint64_t place = 0;
  bool in_place = bytes > 0 && static_cast<const std::byte*>(full) + size_t(rank()) * bytes == shard;
  return in_place && offer(full, size_t(size()) * bytes, place) ? place : 0;
}

void DirectTransport::all_gather(const Call& call, void* full, const void* shard, size_t bytes) {
  auto copy_all = [&](Round round) {
    for (int i = 0; i < size(); ++i) {
      int r = (rank() + i) % size();  // everybody begins with another peer
      std::byte* to = static_cast<std::byte*>(full) + size_t(r) * bytes + round.begin;
      const void* from = r == rank() ? static_cast<const std::byte*>(shard) + round.begin : piece(r, 0, round);
      copy(to, from, round.end - round.begin);
    }
  };
  rounds(call, shard, 1, bytes, copy_all, whole_of(full, shard, bytes));
}

void DirectTransport::reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) {
  size_t bytes = size_t(n) * size_of(dtype);
  const std::byte* mine = static_cast<const std::byte*>(full) + size_t(rank()) * bytes;
  rounds(call, full, size(), bytes, [&](Round round) {
    for (int r = 0; r < size(); ++r) pieces_[size_t(r)] = r == rank() ? mine + round.begin : piece(r, rank(), round);
    tree_sum(static_cast<std::byte*>(shard) + round.begin, pieces_, int64_t((round.end - round.begin) / size_of(dtype)),
             dtype);
  });
}

// Each rank sums its slice in place, in its own buffer, slot or bounce region; then everybody reads the others' slices.
// Where reading everything takes less time than another meeting everybody sums everything.
void DirectTransport::all_reduce(const Call& call, void* data, int64_t n, DType dtype) {
  constexpr size_t kReadAll = size_t(64) << 10;
  size_t element = size_of(dtype), bytes = size_t(n) * element;
  bool alone = bytes <= slot_bytes() && bytes * size_t(size()) <= kReadAll;
  rounds(call, data, 1, bytes, [&](Round round) {
    int64_t count = int64_t((round.end - round.begin) / element);
    auto slice = [&](int r) { return alone ? size_t(0) : size_t(slice_begin(count, size(), r)) * element; };
    std::byte* mine = static_cast<std::byte*>(data) + round.begin;
    std::byte* window = all_copied_ ? my_slot() : sources_[size_t(rank())] ? mine : bounce(rank());
    for (int r = 0; r < size(); ++r) pieces_[size_t(r)] = (r == rank() ? window : piece(r, 0, round)) + slice(rank());
    if (alone) return tree_sum(mine, pieces_, count, dtype);
    tree_sum(window + slice(rank()), pieces_, int64_t((slice(rank() + 1) - slice(rank())) / element), dtype);
    if (!all_copied_) end_reading();
    meet();
    if (!all_copied_) begin_reading();
    for (int r = 0; r < size(); ++r) {
      const std::byte* from = r == rank() ? window : piece(r, 0, round);
      copy(mine + slice(r), from + slice(r), slice(r + 1) - slice(r));
    }
  });
}

void DirectTransport::broadcast(const Call& call, void* data, size_t bytes, int root) {
  // The others offer nothing, but take part in the rounds of a staged root.
  const void* mine = rank() == root ? data : nullptr;
  rounds(call, mine, 1, bytes, [&](Round round) {
    if (rank() != root)
      copy(static_cast<std::byte*>(data) + round.begin, piece(root, 0, round), round.end - round.begin);
  });
}

void DirectTransport::all_to_all(const Call& call, void* out, const void* in, size_t bytes) {
  rounds(call, in, size(), bytes, [&](Round round) {
    for (int i = 0; i < size(); ++i) {
      int r = (rank() + i) % size();
      const void* from =
          r == rank() ? static_cast<const std::byte*>(in) + size_t(r) * bytes + round.begin : piece(r, rank(), round);
      copy(static_cast<std::byte*>(out) + size_t(r) * bytes + round.begin, from, round.end - round.begin);
    }
  });
}

void DirectTransport::barrier(const Call& call) {
  try {
    open(call, nullptr, 0);
  } catch (...) {
    withdraw();
    throw;
  }
}

}  // namespace shardgrad::dist
