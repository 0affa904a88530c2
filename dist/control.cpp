#include <shardgrad/dist/control.h>

#include <unistd.h>

namespace shardgrad::dist {

Control::Control(ControlPage page, int rank) : context_(context()), page_(std::move(page)), rank_(rank) {
  members_.resize(Row::kLanes);
  Row& row = page_.row(rank_);
  row.pid.store(getpid());
  row.state.store(RankState::running);
}

Control::~Control() = default;

int Control::open_lane(uint64_t group, std::vector<int> members) {
  std::lock_guard lock(mutex_);
  Row& row = page_.row(rank_);
  for (int i = 0; i < Row::kLanes; ++i) {
    Lane& lane = row.lanes[i];
    if (!members_[size_t(i)].empty()) continue;
    members_[size_t(i)] = std::move(members);
    lane.finished.store(0);
    lane.place.store(Place());
    lane.closed.store(0);
    lane.group.store(group);
    return i;
  }
  fail_as(ErrorKind::input, "a rank can be in at most ", Row::kLanes,
          " process groups at a time; destroy those that are no longer used");
}

void Control::close_lane(int lane) {
  std::lock_guard lock(mutex_);
  members_[size_t(lane)].clear();
  my_lane(lane).closed.store(1);
}

std::vector<int> Control::members(int lane) const {
  std::lock_guard lock(mutex_);
  return members_[size_t(lane)];
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
  while (!page_.has_cause()) usleep(1000);
  context_.abort(cause_error());
}

void Control::finish() {
  RankState running = RankState::running;
  page_.row(rank_).state.compare_exchange_strong(running, RankState::finished);
}

std::string Control::whereabouts_of(int rank, uint64_t group) const {
  Row& row = page_.row(rank);
  for (Lane& lane : row.lanes) {
    Place place;
    if (lane.group.load() != group || !lane.place.load(place)) continue;
    if (place.sequence > lane.finished.load()) return concat("rank ", rank, " is in ", describe(place));
    RankState state = row.state.load();
    const char* now = state == RankState::finished ? " has finished its program"
                      : state == RankState::failed ? " has failed"
                      : lane.closed.load()         ? " has left the group"
                                                   : " computes";
    if (place.sequence == 0) return concat("rank ", rank, now, ", having made no call yet");
    return concat("rank ", rank, now, ", last in ", describe(place));
  }
  return concat("rank ", rank, row.state.load() == RankState::absent ? " has not started" : " is elsewhere");
}

std::string Control::whereabouts(int lane) const {
  uint64_t group = page_.row(rank_).lanes[lane].group.load();
  std::string text;
  for (int member : members(lane)) text += (text.empty() ? "" : "; ") + whereabouts_of(member, group);
  return text;
}

void Control::throw_diverged(int lane) {
  end_job("the ranks have diverged: " + whereabouts(lane) +
          ". Every rank must make the same collective calls in the same order");
  context_.check_abort();
  fail_as(ErrorKind::rank_failed, page_.cause());
}

std::string describe(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of a foreign type";
  }
}

int exit_code(std::exception_ptr error, int world_size) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return int(e.kind());
  } catch (...) {
    return int(world_size > 1 ? ErrorKind::rank_failed : ErrorKind::internal);
  }
}

}  // namespace shardgrad::dist
