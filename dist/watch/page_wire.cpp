#include <shardgrad/dist/watch/page_wire.h>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {
namespace {

bool ends_with_zero(const Place& place) {
  auto ends = [](const auto& text) { return text[sizeof(text) - 1] == 0; };
  return ends(place.op) && ends(place.unit) && ends(place.phase) && ends(place.detail);
}

// As bytes: what is no bool or no dtype must not be read as one.
uint8_t byte_of(const void* value) { return *static_cast<const uint8_t*>(value); }

bool is_possible(int32_t lane, int) { return lane >= 0 && lane < Row::kLanes; }
bool is_possible(const LaneImage& image, int ranks) {
  return image.closed <= uint32_t(Closed::by_exception) && ends_with_zero(image.place) && image.place.root >= -1 &&
         image.place.root < ranks && byte_of(&image.place.dtype) < kDTypeCount &&
         byte_of(&image.place.has_elements) <= 1;
}
bool is_possible(const RowImage& image, int ranks) {
  return image.rank >= 0 && image.rank < ranks && image.lanes >= 0 && image.lanes <= Row::kLanes &&
         image.state <= RankState::failed;
}
bool is_possible(const CauseImage& image, int ranks) {
  return image.rank >= 0 && image.rank < ranks && image.code > 0 && image.code < 256;  // an exit code
}

}  // namespace

// Read in the order in which readers look, and written in the other one, so that nobody sees a lane closed, or a rank
// finished, whose last collective has not arrived.
bool image_of(const Lane& lane, LaneImage& image) {
  std::memset(static_cast<void*>(&image), 0, sizeof(image));
  image.group = lane.group.load();
  image.closed = lane.closed.load();
  image.blocked = lane.blocked.load();
  image.called = lane.called.load();
  image.caller = lane.caller.load();
  image.finished = lane.finished.load();
  return lane.place.load(image.place) && lane.group.load() == image.group;
}

void write(Lane& lane, const LaneImage& image) {
  if (lane.group.load() != image.group) {  // a later group
    lane.finished.store(0);
    lane.place.store(Place());
    lane.closed.store(0);
    lane.blocked.store(0);
  }
  lane.place.store(image.place);
  lane.finished.store(image.finished);
  lane.caller.store(image.caller);
  lane.called.store(image.called);
  lane.blocked.store(image.blocked);
  lane.group.store(image.group);
  lane.closed.store(image.closed);
}

uint64_t longest_message(int ranks) {
  uint64_t row = sizeof(RowImage) + Row::kLanes * (sizeof(int32_t) + sizeof(LaneImage));
  return 1 + std::max<uint64_t>(uint64_t(ranks) * row, sizeof(CauseImage) + Header::kTextBytes);
}

template <class T> T take(const std::string& bytes, size_t& at, int ranks) {
  T value;
  SG_CHECK(sizeof(T) <= bytes.size() - at, "a message between control pages is cut off");
  std::memcpy(static_cast<void*>(&value), bytes.data() + at, sizeof(T));
  at += sizeof(T);
  SG_CHECK(is_possible(value, ranks), "a message between control pages says what cannot be");
  return value;
}
template int32_t take(const std::string&, size_t&, int);
template LaneImage take(const std::string&, size_t&, int);
template RowImage take(const std::string&, size_t&, int);
template CauseImage take(const std::string&, size_t&, int);

}  // namespace shardgrad::dist
