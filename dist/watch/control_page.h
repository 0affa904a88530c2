#pragma once
// The memory of the control channel: one page for a node, a row for each rank of the job. It is shared by the ranks
// whether they are threads or processes, so it holds only atomics and plain bytes; zeroed memory is a valid new page.
// The pages of several nodes are kept alike by dist/watch/page_link.h.
// A rank writes its own row and reads the others'. The job's first failure, the cause, stands in the header: whoever
// claims it first writes it, and everybody ends with it.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include <shardgrad/core/dtype.h>

namespace shardgrad::dist {

class Bootstrap;

/// Which collective a rank is in, as far as all ranks must agree.
struct Place {
  uint64_t group = 0, sequence = 0;
  int64_t elements = 0;
  int32_t root = -1;
  DType dtype = DType::f32;
  bool has_elements = false;
  char op[18] = {};
  char unit[72] = {};  ///< a longer one ends in a number that stands for all of it
  char phase[16] = {};
  char detail[64] = {};  ///< a longer one ends in a number that stands for all of it

  uint64_t fingerprint() const;
};
/// "all_gather #7 of unit 'layers.0' in forward (1024 f32)".
std::string describe(const Place& place);

/// The 8 bytes of `value` from byte 8 · i on, as a number; zeros follow its last.
template <class T> uint64_t word_of(const T& value, size_t i) {
  uint64_t word = 0;
  std::memcpy(&word, reinterpret_cast<const std::byte*>(&value) + 8 * i, std::min<size_t>(8, sizeof(T) - 8 * i));
  return word;
}

/// A small value written by one thread and read by others without a lock: a read that overlaps a write is repeated.
template <class T> class Published {
 public:
  void store(const T& value) {
    uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    for (size_t i = 0; i < kWords; ++i) words_[i].store(word_of(value, i), std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }
  /// False when a write was in the way a few times; the caller comes again later.
  bool load(T& value) const {
    for (int attempt = 0; attempt < 8; ++attempt) {
      uint32_t before = version_.load(std::memory_order_acquire);
      std::array<uint64_t, kWords> words;
      for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 1 || version_.load(std::memory_order_relaxed) != before) continue;
      std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
      return true;
    }
    return false;
  }

 private:
  static constexpr size_t kWords = (sizeof(T) + 7) / 8;
  std::atomic<uint32_t> version_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

/// How a rank has left a group: in good order, or by an exception, which will become the job's cause in a moment unless
/// the program catches it.
enum class Closed : uint32_t { no, in_order, by_exception };

/// What a rank does in one of its groups. A lane is used again by a later group.
struct alignas(64) Lane {
  std::atomic<uint64_t> group{0};     ///< id; 0: never used
  std::atomic<uint64_t> finished{0};  ///< sequence of the last finished collective
  std::atomic<uint32_t> closed{0};    ///< the group has been destroyed on this rank: see Closed
  std::atomic<uint32_t> caller{0};    ///< the thread that makes the group's calls
  std::atomic<uint64_t> called{0};    ///< sequence of the last call made, which may still be queued
  std::atomic<uint64_t> blocked{0};   ///< a thread that waits for a collective of this lane: see Blocked; 0: none
  Published<Place> place;             ///< the collective it is in, or was in last
};

/// A thread that goes on only when collective `sequence` of a lane is done, as one word.
struct Blocked {
  uint32_t thread;
  uint64_t sequence;
  uint64_t word() const { return sequence << 24 | thread; }  // Linux has fewer than 2^22 threads
  static Blocked from(uint64_t word) { return {uint32_t(word & 0xffffff), word >> 24}; }
};

enum class RankState : uint32_t { absent, running, finished, failed };

struct alignas(64) Row {
  static constexpr int kLanes = 32;
  std::atomic<uint64_t> beats{0};
  std::atomic<int32_t> pid{0};
  std::atomic<RankState> state{RankState::absent};
  std::atomic<int32_t> tracer{0};  ///< pid of its debugger, for ranks on other machines
  std::atomic<int32_t> used{0};    ///< lanes from here on never had a group
  /// 0 where the rank writes its row itself. Elsewhere it counts the images of the row that have come, and is odd while
  /// one is written and where its lanes may never have been so at one time (dist/watch/page_news.h).
  std::atomic<uint64_t> image{0};
  Lane lanes[kLanes];

  std::span<const Lane> used_lanes() const { return {lanes, size_t(used.load(std::memory_order_acquire))}; }
  /// To be called before a lane gets its group.
  void use(int lane) {
    if (used.load() <= lane) used.store(lane + 1, std::memory_order_release);
  }
  /// This rank's lane of a group, or null.
  const Lane* lane_of(uint64_t group) const {
    for (const Lane& lane : used_lanes())
      if (lane.group.load() == group) return &lane;
    return nullptr;
  }
};

struct Header {
  static constexpr size_t kTextBytes = 2048;
  std::atomic<uint32_t> claim{0};    ///< 0: no failure; 1: being written; 2: the cause can be read
  std::atomic<uint32_t> printed{0};  ///< somebody has said the cause
  std::atomic<uint32_t> ending{0};   ///< somebody ends the job the launcher's way
  std::atomic<int32_t> rank{-1}, code{0};
  char text[kTextBytes] = {};
};

/// A page in memory that `memory` keeps alive: zeroed, page_bytes(ranks) long.
class ControlPage {
 public:
  ControlPage(std::shared_ptr<void> memory, int ranks) : memory_(std::move(memory)), ranks_(ranks) {}
  static size_t page_bytes(int ranks) { return kRowsAt + size_t(ranks) * sizeof(Row); }
  int ranks() const { return ranks_; }
  Header& header() const { return *static_cast<Header*>(memory_.get()); }
  Row& row(int rank) const { return reinterpret_cast<Row*>(static_cast<std::byte*>(memory_.get()) + kRowsAt)[rank]; }

  /// Makes this the job's cause unless there is one. True when it was the first. Of a text that is too long the
  /// beginning stays, which names who failed.
  bool claim_cause(int rank, int code, const std::string& text) const;
  bool has_cause() const { return header().claim.load(std::memory_order_acquire) == 2; }
  /// Somebody has claimed it, and its text cannot be read yet.
  bool cause_comes() const { return header().claim.load(std::memory_order_acquire) == 1; }
  std::string cause() const { return has_cause() ? header().text : "a rank died while it was saying why it failed"; }

 private:
  static constexpr size_t kRowsAt = (sizeof(Header) + 63) / 64 * 64;
  std::shared_ptr<void> memory_;
  int ranks_;
};

/// Prints the cause on standard error, once per job: by whoever comes first of the ranks that end
/// (dist/launch/job.cpp), the monitors that got SIGTERM, and the launcher of ranks without MPI. With a path, reports it
/// there instead (dist/os/report.h): dist/launch/launch.cpp prints it when mpirun has ended.
void announce(const ControlPage& page, const std::string& path = {});

/// A page for ranks that are threads of this process.
ControlPage make_private_page(int ranks);
/// The page that the ranks of a machine share (page_link.h connects machines). Called once, by all ranks. Where they
/// cannot share memory it is private, and `reason` says why.
ControlPage make_shared_page(Bootstrap& bootstrap, std::string& reason);

}  // namespace shardgrad::dist
