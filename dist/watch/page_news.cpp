#include <shardgrad/dist/watch/page_news.h>

namespace shardgrad::dist {

PageNews::PageNews(ControlPage page, const RankMap& map, int rank)
    : page_(std::move(page)), map_(map), passes_on_(rank == 0), index_(size_t(page_.ranks()), -1) {
  int here = map_.node_rank(rank);
  entries_.reserve(size_t(passes_on_ ? page_.ranks() : map_.local_size(here)));
  for (int r = 0; r < page_.ranks(); ++r) {
    bool mine = map_.node_rank(r) == here;
    if (!mine && !passes_on_) continue;
    int entry = index_[size_t(r)] = int(entries_.size());
    entries_.emplace_back().rank = r;
    entries_.back().head.rank = r;
    entries_.back().place = order_.insert(order_.end(), entry);
    if (!mine) continue;
    entries_.back().seen = int(mine_.size());
    mine_.emplace_back().entry = entry;
    std::memset(static_cast<void*>(mine_.back().lanes.data()), 0, sizeof(Seen::lanes));
  }
}

// Reads the lanes. False when one was being written meanwhile.
bool PageNews::read(Seen& seen, uint32_t& changed) const {
  const Row& row = this->row(entries_[size_t(seen.entry)]);
  size_t lane = 0;
  LaneImage now;
  for (const Lane& one : row.used_lanes()) {
    if (!image_of(one, now)) return false;
    if (!(now == seen.lanes[lane])) {
      changed |= uint32_t(1) << lane;
      std::memcpy(static_cast<void*>(&seen.lanes[lane]), &now, sizeof(now));
    }
    ++lane;
  }
  return true;
}

void PageNews::look_at(Seen& seen, Clock::time_point now) {
  Entry& entry = entries_[size_t(seen.entry)];
  RowImage head = head_of(row(entry), entry.rank);  // before the lanes: who has finished makes no further call
  uint32_t changed = 0;
  bool whole = read(seen, changed);
  bool was_read = whole && changed == 0;
  if (!was_read) {
    entry.changed |= changed;
    entry.since = now;
    note_untold(entry, now);
  }
  entry.stood = was_read;
  if (whole && !(head == entry.head)) tell(entry, head, now);
}

void PageNews::look(Clock::time_point now) {
  for (Seen& seen : mine_) look_at(seen, now);
  std::erase_if(untold_, [&](int i) {
    Entry& entry = entries_[size_t(i)];
    if (!entry.told && is_due(entry, now)) tell(entry, entry.head, now);
    entry.listed = !entry.told;
    return entry.told;
  });
}

bool PageNews::is_due(const Entry& entry, Clock::time_point now) const {
  if (entry.stood && now - entry.since >= (passes_on_ ? pace_.passed_on : pace_.own)) return true;
  return !passes_on_ && entry.changed != 0 && now - entry.untold_since >= pace_.moving;
}

void PageNews::note_untold(Entry& entry, Clock::time_point now) {
  if (!std::exchange(entry.told, false)) return;
  entry.untold_since = now;
  if (!std::exchange(entry.listed, true)) untold_.push_back(index_[size_t(entry.rank)]);
}

void PageNews::heard(const RowNews& news, Clock::time_point now) {
  int i = index_[size_t(news.image.rank)];
  if (i < 0) return;  // nobody is told of it from here
  Entry& entry = entries_[size_t(i)];
  entry.changed |= news.lanes;
  entry.stood = news.image.stood;
  entry.since = now;
  note_untold(entry, now);
  RowImage head = head_of(row(entry), entry.rank);
  if (!(head == entry.head)) tell(entry, head, now);
}

void PageNews::look_at_states() {
  for (Entry& entry : entries_)
    if (row(entry).state.load() != entry.head.state) tell(entry, head_of(row(entry), entry.rank), entry.untold_since);
}

// What has stood is told for good; the rest will be told again once it stands.
void PageNews::tell(Entry& entry, const RowImage& head, Clock::time_point now) {
  entry.head = head;
  entry.news = ++last_;
  for (size_t lane = 0; lane < entry.lanes.size(); ++lane)
    if (entry.changed >> lane & 1) entry.lanes[lane] = last_;
  entry.changed = 0;
  entry.untold_since = now;
  order_.splice(order_.end(), order_, entry.place);
  if (entry.stood)
    entry.told = true;
  else
    note_untold(entry, now);
}

std::string PageNews::since(Told& told, int machine) const {
  std::string body;
  auto news = order_.end();
  while (news != order_.begin() && entries_[size_t(*std::prev(news))].news > told.up_to) --news;
  for (; news != order_.end() && body.size() < kRowsInAMessage; ++news) {
    const Entry& entry = entries_[size_t(*news)];
    told.up_to = entry.news;
    if (map_.node_rank(entry.rank) != machine) append_row(body, entry, told.all);
  }
  if (!has_more(told)) told.all = told.up_to;
  return body;
}

void PageNews::append_row(std::string& body, const Entry& entry, uint64_t told) const {
  RowImage head = entry.head;
  size_t begin = body.size();
  append(body, head);
  for (int32_t lane = 0; lane < Row::kLanes; ++lane) {
    if (entry.lanes[size_t(lane)] <= told) continue;
    LaneImage image;
    if (entry.seen >= 0)
      std::memcpy(static_cast<void*>(&image), &mine_[size_t(entry.seen)].lanes[size_t(lane)], sizeof(image));
    else
      image_of(row(entry).lanes[lane], image);  // which only this thread writes
    append(body, lane);
    append(body, image);
    ++head.lanes;
  }
  head.stood = entry.stood && entry.changed == 0;
  std::memcpy(body.data() + begin, &head, sizeof(head));
}

RankBits PageNews::beats() {
  RankBits bits(page_.ranks());
  for (Entry& entry : entries_) {
    uint64_t beats = row(entry).beats.load(std::memory_order_relaxed);
    if (std::exchange(entry.beats, beats) != beats) bits.set(entry.rank);
  }
  return bits;
}

}  // namespace shardgrad::dist
