#pragma once
// What travels between the control pages of a job's machines (dist/watch/page_link.h): frames of a length, a kind and a
// body. Rows and lanes travel as images of themselves. An image that was not made by `image_of` may hold anything: it
// is checked before a page is touched.

#include <string>

#include <shardgrad/dist/watch/control_page.h>

namespace shardgrad::dist {

enum class PageMessage : char { rows = 'r', cause = 'c', farewell = 'f' };

struct LaneImage {
  uint64_t group, finished, called, blocked;
  uint32_t closed, caller;
  Place place;
  bool operator==(const LaneImage& other) const { return std::memcmp(this, &other, sizeof(LaneImage)) == 0; }
};

/// Followed by `lanes` times the number of a lane (int32) and its image.
struct RowImage {
  uint64_t beats = 0;
  int32_t rank = 0, pid = 0, tracer = 0, lanes = 0;
  RankState state = RankState::absent;
  uint32_t unused = 0;
  bool operator==(const RowImage&) const = default;
};

/// Followed by the text.
struct CauseImage {
  int32_t rank, code;
};

/// False when the lane was being written meanwhile.
bool image_of(const Lane& lane, LaneImage& image);
void write(Lane& lane, const LaneImage& image);

/// The longest frame that can come for a page of so many ranks.
uint64_t longest_message(int ranks);
template <class T> void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
/// Takes a value at `at`, which moves on. Throws Error(input) when there is none, or it cannot be one: its rank is none
/// of `ranks`, and so on.
template <class T> T take(const std::string& bytes, size_t& at, int ranks);

}  // namespace shardgrad::dist
