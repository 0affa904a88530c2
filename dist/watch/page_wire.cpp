#include <shardgrad/dist/watch/page_wire.h>

#include <algorithm>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {
namespace {

// A lane as it travels, followed by the four texts of its place, which are mostly short.
struct LaneHead {
  uint64_t group = 0, finished = 0, called = 0, blocked = 0, place_group = 0, sequence = 0;
  int64_t elements = 0;
  uint32_t closed = 0, caller = 0;
  int32_t root = -1;
  uint8_t dtype = 0, has_elements = 0, lengths[4] = {};
  uint8_t unused[6] = {};
};
static_assert(sizeof(LaneHead) == 80, "without gaps, whose bytes would be anything");

template <class Image, class Each> void each_text(Image& image, Each&& each) {
  each(image.place.op);
  each(image.place.unit);
  each(image.place.phase);
  each(image.place.detail);
}

constexpr size_t kTexts = sizeof(Place::op) + sizeof(Place::unit) + sizeof(Place::phase) + sizeof(Place::detail);

bool is_possible(int32_t lane, int) { return lane >= 0 && lane < Row::kLanes; }
bool is_possible(const LaneHead& head, int ranks) {
  return head.closed <= uint32_t(Closed::by_exception) && head.root >= -1 && head.root < ranks &&
         head.dtype < kDTypeCount && head.has_elements <= 1;
}
bool is_possible(const RowImage& image, int ranks) {
  return image.rank >= 0 && image.rank < ranks && image.lanes >= 0 && image.lanes <= Row::kLanes &&
         image.state <= RankState::failed && image.begun <= 1 && image.stood <= 1;
}
bool is_possible(const CauseImage& image, int ranks) {
  return image.rank >= 0 && image.rank < ranks && image.code > 0 && image.code < 256;  // an exit code
}

LaneImage image_with(const LaneHead& head) {
  LaneImage image;
  std::memset(static_cast<void*>(&image), 0, sizeof(image));
  image.group = head.group;
  image.finished = head.finished;
  image.called = head.called;
  image.blocked = head.blocked;
  image.closed = head.closed;
  image.caller = head.caller;
  image.place.group = head.place_group;
  image.place.sequence = head.sequence;
  image.place.elements = head.elements;
  image.place.root = head.root;
  image.place.dtype = DType(head.dtype);
  image.place.has_elements = head.has_elements;
  return image;
}

}  // namespace

RowImage head_of(const Row& row, int rank) {
  RowImage image{.rank = rank, .pid = row.pid.load(), .tracer = row.tracer.load()};
  image.state = row.state.load();
  image.begun = row.beats.load() > 0;
  return image;
}

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

RankBits::RankBits(int ranks, std::string bytes) : bytes_(std::move(bytes)) {
  bool right = bytes_.size() == size_t(ranks + 7) / 8;
  if (right && ranks % 8 != 0) right = (uint8_t(bytes_.back()) >> ranks % 8) == 0;
  SG_CHECK(right, "a message between control pages tells of other ranks than there are");
}

void RankBits::add(const RankBits& other) {
  for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = char(bytes_[i] | other.bytes_[i]);
}

uint64_t longest_message(int ranks) {
  constexpr uint64_t kRow = sizeof(RowImage) + Row::kLanes * (sizeof(int32_t) + sizeof(LaneHead) + kTexts);
  return 1 + std::max({kRowsInAMessage + kRow, sizeof(CauseImage) + Header::kTextBytes, uint64_t(ranks + 7) / 8});
}

void append(std::string& bytes, const LaneImage& image) {
  const Place& place = image.place;
  LaneHead head{image.group,    image.finished, image.called, image.blocked, place.group,          place.sequence,
                place.elements, image.closed,   image.caller, place.root,    uint8_t(place.dtype), place.has_elements};
  size_t n = 0;
  each_text(image, [&](const auto& text) { head.lengths[n++] = uint8_t(strnlen(text, sizeof(text) - 1)); });
  append(bytes, head);
  n = 0;
  each_text(image, [&](const auto& text) { bytes.append(text, head.lengths[n++]); });
}

// Lanes before the state: who has finished makes no further call.
RowNews take_row(const std::string& message, size_t& at, const ControlPage& page, const MayTell& may_tell) {
  RowNews news{take<RowImage>(message, at, page.ranks())};
  const RowImage& image = news.image;
  SG_CHECK(may_tell(image.rank), "a control page was told of rank ", image.rank, " by who cannot know");
  Row& row = page.row(image.rank);
  uint64_t version = row.image.load() / 2 * 2 + 1;
  row.image.store(version);
  for (int i = 0; i < image.lanes; ++i) {
    auto lane = take<int32_t>(message, at, page.ranks());
    auto what = take<LaneImage>(message, at, page.ranks());
    row.use(lane);
    write(row.lanes[lane], what);
    news.lanes |= uint32_t(1) << lane;
  }
  row.pid.store(image.pid);
  row.tracer.store(image.tracer);
  if (image.begun && row.beats.load() == 0) row.beats.store(1);
  row.state.store(image.state);
  row.image.store(image.stood ? version + 1 : version + 2);
  return news;
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
template RowImage take(const std::string&, size_t&, int);
template CauseImage take(const std::string&, size_t&, int);

template <> LaneImage take(const std::string& bytes, size_t& at, int ranks) {
  auto head = take<LaneHead>(bytes, at, ranks);
  LaneImage image = image_with(head);
  size_t n = 0;
  each_text(image, [&](auto& text) {
    size_t length = head.lengths[n++];
    SG_CHECK(length < sizeof(text) && length <= bytes.size() - at,
             "a message between control pages has a text that cannot be so long");
    std::memcpy(text, bytes.data() + at, length);
    at += length;
  });
  return image;
}

}  // namespace shardgrad::dist
