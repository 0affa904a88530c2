#include <shardgrad/dist/watch/control.h>

#include <unistd.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <unordered_map>

#include <shardgrad/dist/os/machine.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/os/rank_map.h>

namespace shardgrad::dist {

Control::Control(ControlPage page, int rank) : context_(context()), page_(std::move(page)), rank_(rank) {
  members_.resize(Row::kLanes);
  Row& row = page_.row(rank_);
  row.pid.store(getpid());
  row.state.store(RankState::running);
}

int Control::open_lane(uint64_t group, std::vector<int> members) {
  std::lock_guard lock(mutex_);
  Row& row = page_.row(rank_);
  for (int n = 0; n < Row::kLanes; ++n) {
    int i = (last_lane_ + 1 + n) % Row::kLanes;  // in turn: a closed lane can be read for a while
    if (members_[size_t(i)]) continue;
    Lane& lane = row.lanes[i];
    last_lane_ = i;
    members_[size_t(i)] = std::make_shared<const std::vector<int>>(std::move(members));
    lane.finished.store(0);
    lane.place.store(Place());
    lane.closed.store(0);
    lane.blocked.store(0);
    call(i, 0);
    row.use(i);
    lane.group.store(group);
    return i;
  }
  fail_as(ErrorKind::input, "a rank can be in at most ", Row::kLanes,
          " process groups at a time; destroy those that are no longer used, and let meshes and models share theirs: ",
          "kept_split gives the same group for the same numbers and name");
}

static uint32_t this_thread() {
  static thread_local const auto id = uint32_t(gettid());
  return id;
}

void Control::call(int lane, uint64_t sequence) {
  my_lane(lane).caller.store(this_thread(), std::memory_order_relaxed);
  my_lane(lane).called.store(sequence, std::memory_order_release);
}

Control::Waiting::Waiting(Control& control, int lane, uint64_t sequence)
    : blocked_(control.my_lane(lane).blocked), word_(Blocked{this_thread(), sequence}.word()) {
  blocked_.store(word_);
}

void Control::close_lane(int lane, Closed how) {
  std::lock_guard lock(mutex_);
  members_[size_t(lane)].reset();
  my_lane(lane).closed.store(uint32_t(how));
}

Control::Members Control::members(int lane) const {
  std::lock_guard lock(mutex_);
  return members_[size_t(lane)];
}

bool Control::is_lost(int lane, int member) const {
  if (!page_.has_cause()) return false;
  pid_t pid = page_.row(members(lane)->at(size_t(member))).pid.load();
  return pid != 0 && pid != getpid() && stands_still(pid);
}

std::exception_ptr Control::cause_error() const {
  return std::make_exception_ptr(Error(ErrorKind::rank_failed, page_.cause()));
}

void Control::fail(std::exception_ptr error) noexcept {
  std::string sentence = describe(error);
  if (size() > 1) sentence = concat("rank ", rank_, " failed: ", sentence);
  page_.claim_cause(rank_, exit_code(error, size()), sentence);
  page_.row(rank_).state.store(RankState::failed);
  context_.abort(error);
}

void Control::end_job(const std::string& sentence, int code) noexcept {
  page_.claim_cause(rank_, code, sentence);
  for (int i = 0; i < 1000 && !page_.has_cause(); ++i) usleep(1000);  // another rank was first and is writing
  context_.abort(cause_error());
}

void Control::finish() {
  RankState running = RankState::running;
  page_.row(rank_).state.compare_exchange_strong(running, RankState::finished);
}

LaneView Control::look(int index) const {
  LaneView view;
  const Lane& mine = my_lane(index);
  Members ranks = members(index);
  if (!ranks || !mine.place.load(view.place) || view.place.sequence <= mine.finished.load()) return view;
  view.waiting = view.speaker = true;
  uint64_t fingerprint = view.place.fingerprint();
  for (int r : *ranks) {
    const Row& row = page_.row(r);
    const Lane* theirs = row.lane_of(view.place.group);
    // The state is read first: a rank that has ended makes no further call. A call that it has made may be done before
    // its place says so.
    RankState state = row.state.load();
    bool ended = state == RankState::finished || state == RankState::failed;
    auto closed = Closed(theirs ? theirs->closed.load() : 0);
    Place place;
    if (r == rank_ || !theirs || !theirs->place.load(place) || place.sequence > view.place.sequence) continue;
    if (place.sequence < view.place.sequence) {
      view.late.push_back(r);
      view.diverged |= closed == Closed::in_order || (ended && theirs->called.load() < view.place.sequence);
      view.left |= closed == Closed::by_exception;
    } else {
      view.diverged |= place.fingerprint() != fingerprint;
      view.left |= closed == Closed::by_exception && theirs->finished.load() < place.sequence;
      if (r < rank_ && theirs->finished.load() < place.sequence) view.speaker = false;
    }
  }
  return view;
}

static std::string idle(const Row& row, const Lane& lane, const Place& place) {
  RankState state = row.state.load();
  std::string now = state == RankState::finished ? "finished with its program"
                    : state == RankState::failed ? "failed"
                    : lane.closed.load()         ? "out of the group"
                                                 : "computing";
  return now + (place.sequence == 0 ? ", no call made yet" : ", last in " + describe(place));
}

std::string Control::whereabouts_of(int rank, uint64_t group) const {
  const Row& row = page_.row(rank);
  std::string idle_text, elsewhere;
  bool closed = false;
  for (const Lane& lane : row.used_lanes()) {
    Place place;
    uint64_t id = lane.group.load();
    if (id == 0 || !lane.place.load(place)) continue;
    bool asked = group == 0 || id == group;
    bool left = lane.closed.load();
    if (place.sequence > lane.finished.load() && (asked || !left)) {
      if (asked) return (left ? "out of the group, which it left in " : "in ") + describe(place);
      elsewhere = "in " + describe(place) + " of another group";
    } else if (asked && idle_text.empty()) {
      idle_text = idle(row, lane, place);
      closed = lane.closed.load();
    }
  }
  if (!elsewhere.empty() && !closed) return elsewhere;
  if (!idle_text.empty()) return idle_text;
  if (row.state.load() == RankState::absent) return "not started";
  return row.used_lanes().empty() ? "before the first collective" : "in none of its groups";
}

// A sentence has room for its remedy, too, however many ranks it tells of.
constexpr size_t kRoomForPlaces = Header::kTextBytes / 2;

namespace {

/// Ranks that are in the same place.
struct Together {
  std::string where;
  std::vector<int> ranks;
  bool told = false;
};

std::string sentence_on(const std::vector<Together>& places) {
  std::string text;
  std::vector<int> left;
  for (const Together& place : places)
    if (place.told)
      text += concat(text.empty() ? "" : "; ", list_of(place.ranks), ' ', place.where);
    else
      left.insert(left.end(), place.ranks.begin(), place.ranks.end());
  std::ranges::sort(left);
  return left.empty() ? text : concat(text, "; ", list_of(left), " elsewhere");
}

}  // namespace

std::string Control::whereabouts(int lane) const {
  std::vector<Together> places;
  std::unordered_map<std::string, size_t> known;
  uint64_t group = my_lane(lane).group.load();
  Members all = members(lane);
  for (int member : all ? *all : std::vector<int>()) {
    std::string where = whereabouts_of(member, group);
    auto [place, is_new] = known.try_emplace(where, places.size());
    if (is_new) places.push_back({std::move(where), {}});
    places[place->second].ranks.push_back(member);
  }
  std::vector<Together*> fewest;
  for (Together& place : places) fewest.push_back(&place);
  std::ranges::stable_sort(fewest, {}, [](const Together* place) { return place->ranks.size(); });
  size_t said = 0;
  for (Together* place : fewest) {
    if (said > kRoomForPlaces) break;
    place->told = true;
    said += list_of(place->ranks).size() + place->where.size() + 3;
  }
  return sentence_on(places);
}

std::string Control::divergence(int lane) const {
  return "the ranks have diverged: " + whereabouts(lane) +
         ". Every rank must make the same collective calls in the same order";
}

std::string Control::deadlock(const std::vector<Stuck>& cycle) const {
  std::string text = "the ranks wait for each other in different groups: ";
  for (size_t i = 0; i < cycle.size(); ++i) {
    if (text.size() > kRoomForPlaces) {
      std::vector<int> rest;
      for (; i < cycle.size(); ++i) rest.push_back(cycle[i].rank);
      std::ranges::sort(rest);
      text += concat("; and so on through ", list_of(rest));
      break;
    }
    std::vector<int> group;
    for (int r = 0; r < size(); ++r)
      if (page_.row(r).lane_of(cycle[i].place.group)) group.push_back(r);
    text += concat(i == 0 ? "" : "; ", "rank ", cycle[i].rank, " in ", describe(cycle[i].place), " of the group of ",
                   list_of(group), ", for rank ", cycle[(i + 1) % cycle.size()].rank);
  }
  return text + ". Every rank must make the calls of all its groups in the same order";
}

void Control::throw_diverged(int lane) {
  end_job(divergence(lane));
  context_.check_abort();
  fail_as(ErrorKind::rank_failed, page_.cause());
}

// What the start of a thread throws where a limit is reached.
static bool is_thread_limit(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again;
}

std::string describe(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& e) {
    return is_thread_limit(e) ? concat("a thread cannot be started: ", e.what(), "; ", kFewerOrMore) : e.what();
  } catch (const std::bad_alloc&) {
    return "out of memory: the host has none left";
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of a foreign type";
  }
}

int exit_code(std::exception_ptr error, int world_size) {
  constexpr int kOutOfMemory = 5;
  try {
    std::rethrow_exception(error);
  } catch (const OutOfMemory&) {
    return kOutOfMemory;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const Error& e) {
    return int(e.kind());
  } catch (const std::system_error& e) {
    if (is_thread_limit(e)) return int(ErrorKind::missing);
    return int(world_size > 1 ? ErrorKind::rank_failed : ErrorKind::internal);
  } catch (...) {
    return int(world_size > 1 ? ErrorKind::rank_failed : ErrorKind::internal);
  }
}

}  // namespace shardgrad::dist
