#pragma once
// What travels between the control pages of a job's machines (dist/watch/page_link.h): frames of a length, a kind and a
// body. Rows travel as a head and those of their lanes that have changed, heartbeats as a bit for each rank. What was
// not written by `append` may hold anything: it is checked before a page is touched. A change here is one of the
// protocol: kMagic of dist/bootstrap/host.cpp counts it.

#include <functional>
#include <string>

#include <shardgrad/dist/watch/control_page.h>

namespace shardgrad::dist {

enum class PageMessage : char { rows = 'r', beats = 'b', cause = 'c', farewell = 'f' };

struct LaneImage {
  uint64_t group, finished, called, blocked;
  uint32_t closed, caller;
  Place place;
  bool operator==(const LaneImage& other) const { return std::memcmp(this, &other, sizeof(LaneImage)) == 0; }
};

/// A row but for its lanes. Followed by `lanes` times the number of a lane (int32) and its image.
struct RowImage {
  int32_t rank = 0, pid = 0, tracer = 0, lanes = 0;
  RankState state = RankState::absent;
  uint8_t begun = 0;  ///< it has had a heartbeat
  uint8_t stood = 0;  ///< with these lanes the row is what it was at one time; see Row::image
  uint8_t unused[2] = {};
  bool operator==(const RowImage&) const = default;
};

/// Followed by the text.
struct CauseImage {
  int32_t rank, code;
};

/// Of a row as it is now; `stood` and `lanes` are left to the caller.
RowImage head_of(const Row& row, int rank);
/// False when the lane was being written meanwhile.
bool image_of(const Lane& lane, LaneImage& image);
void write(Lane& lane, const LaneImage& image);

/// A bit for each rank.
class RankBits {
 public:
  explicit RankBits(int ranks) : bytes_(size_t(ranks + 7) / 8, '\0') {}
  /// Throws Error(input) when they are not of so many ranks.
  RankBits(int ranks, std::string bytes);
  void set(int rank) { bytes_[size_t(rank) / 8] = char(bytes_[size_t(rank) / 8] | 1 << rank % 8); }
  void clear(int rank) { bytes_[size_t(rank) / 8] = char(bytes_[size_t(rank) / 8] & ~(1 << rank % 8)); }
  bool get(int rank) const { return bytes_[size_t(rank) / 8] >> rank % 8 & 1; }
  void add(const RankBits& other);
  bool any() const { return bytes_.find_first_not_of('\0') != bytes_.npos; }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Whether who sends may say what a rank does.
using MayTell = std::function<bool(int rank)>;
/// A row that came, and its lanes, a bit for each.
struct RowNews {
  RowImage image;
  uint32_t lanes = 0;
};
/// Takes a row and its lanes at `at`, which moves on, and writes them into the page. Throws Error(input) as `take`
/// does, and for a rank that the sender may not tell of.
RowNews take_row(const std::string& message, size_t& at, const ControlPage& page, const MayTell& may_tell);

/// About where a message of rows ends, at the end of a row: what comes behind it is not late for long.
inline constexpr size_t kRowsInAMessage = 8 << 10;
/// The longest frame that can come for a page of so many ranks.
uint64_t longest_message(int ranks);
template <class T> void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
void append(std::string& bytes, const LaneImage& image);
/// Takes a value at `at`, which moves on. Throws Error(input) when there is none, or it cannot be one: its rank is none
/// of `ranks`, and so on.
template <class T> T take(const std::string& bytes, size_t& at, int ranks);
template <> LaneImage take(const std::string& bytes, size_t& at, int ranks);

}  // namespace shardgrad::dist
