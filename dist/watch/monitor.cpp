#include <shardgrad/dist/watch/monitor.h>

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <shardgrad/dist/os/children.h>
#include <shardgrad/dist/os/rank_map.h>

namespace shardgrad::dist {

static constexpr std::chrono::seconds kGraceAfterSignal(5);
static constexpr std::chrono::milliseconds kMoment(700);  // in which a cause is told, or a launcher asks
static constexpr int kBeatsOfAFarLook = 5;

Monitor::Monitor(std::shared_ptr<Control> control, WatchOptions options)
    : control_(std::move(control)),
      options_(std::move(options)),
      context_(context()),
      peers_(size_t(control_->size())),
      elsewhere_(peers_.size()),
      waits_(Row::kLanes),
      now_(Clock::now()),
      wake_(eventfd(0, EFD_CLOEXEC)) {
  for (auto* limit : {&options_.silence_limit, &options_.warn_after, &options_.warn_again, &options_.left_limit,
                      &options_.stall_limit, &options_.start_limit})
    *limit = std::min(*limit, kLongestLimit);
  for (int r : options_.elsewhere) elsewhere_[size_t(r)] = true;
  for (int r = 0; r < control_->size(); ++r)
    if (r != control_->rank() && !is_elsewhere(r)) here_.push_back(r);
  if (options_.parent) parent_ = ProcessWatch(getppid());
  restart_windows();
  thread_ = Thread([this] { loop(); });
}

Monitor::~Monitor() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(wake_, &one, sizeof(one));
  thread_.join();
  close(wake_);
}

void Monitor::loop() {
  ContextScope scope(context_);
  pollfd stop{wake_, POLLIN, 0};
  while (poll(&stop, 1, 0) == 0) {
    now_ = Clock::now();
    if (control_->note_beat(now_, options_.beat, options_.gap)) restart_windows();
    tick();
    sleep();
  }
}

// One beat long, less when a process dies, a signal comes, or the monitor is to stop, and while ranks are still
// starting, so that each is watched from the beginning.
void Monitor::sleep() {
  int beat = int(options_.beat.count());
  if (!all_begun()) beat = std::min(beat, 5);
  std::vector<pollfd> wakers = {{wake_, POLLIN, 0}, {options_.signals, POLLIN, 0}};
  bool ended = control_->page().has_cause();
  for (int r : here_)
    if (!ended && options_.processes) wakers.push_back({peers_[size_t(r)].process.descriptor(), POLLIN, 0});
  if (!ended) wakers.push_back({parent_.descriptor(), POLLIN, 0});
  poll(wakers.data(), wakers.size(), beat);
}

bool Monitor::all_begun() {
  while (begun_ < control_->size() && row(begun_).state.load() != RankState::absent) ++begun_;
  return begun_ == control_->size();
}

void Monitor::restart_windows() {
  for (Peer& peer : peers_) peer.heard = now_;
  for (Wait& wait : waits_) wait = Wait();
}

void Monitor::tick() try {
  control_->page().row(control_->rank()).beats.fetch_add(1, std::memory_order_relaxed);
  read_signals();
  if (!control_->page().has_cause()) {
    if (options_.processes) watch_processes();
    watch_heartbeats();
    for (int lane = 0; lane < Row::kLanes; ++lane) watch_lane(lane);
  }
  tell();
  control_->check();
} catch (...) {
  // The context has been aborted: whoever waits in it learns why. This thread goes on beating.
}

void Monitor::watch_processes() {
  for (int r : here_) {
    Peer& peer = peers_[size_t(r)];
    pid_t pid = row(r).pid.load();
    if (row(r).state.load() != RankState::running) {
      peer.process = ProcessWatch();
      continue;
    }
    if (peer.process.pid() != pid) peer.process = ProcessWatch(pid);
    // Its state is looked at once more: it may have ended in good order in the meantime.
    if (!peer.process.died() || row(r).state.load() != RankState::running) continue;
    std::string how = peer.process.how_it_ended();
    control_->end_job(concat("rank ", r, " (pid ", pid, ") died: ", how.empty() ? kUnknownEnd : how));
    control_->page().row(r).state.store(RankState::failed);  // nobody needs to wait for it
  }
  if (parent_.died()) control_->end_job(concat("the launcher (pid ", parent_.pid(), ") died, which ends its ranks"));
}

void Monitor::watch_heartbeats() {
  for (int r : here_)
    if (options_.processes) watch_heartbeat(r);
  if (now_ < next_look_) return;
  next_look_ = now_ + kBeatsOfAFarLook * options_.beat;
  for (int r : options_.elsewhere) watch_heartbeat(r);
}

void Monitor::watch_heartbeat(int rank) {
  Peer& peer = peers_[size_t(rank)];
  uint64_t beats = row(rank).beats.load(std::memory_order_relaxed);
  if (beats == 0 && watch_start(rank)) return;
  bool judged = row(rank).state.load() == RankState::running && beats > 0;
  if (!judged || std::exchange(peer.beats, beats) != beats) {
    peer.heard = now_;
    peer.excused = false;
  }
  if (now_ - peer.heard < options_.silence_limit) return;
  if (excuse(rank)) {  // its window starts anew: the debugger may go before the next beat comes
    peer.heard = now_;
    return;
  }
  pid_t pid = row(rank).pid.load();
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now_ - peer.heard).count();
  std::vector<int> missed = missed_with(rank);
  std::string who = concat("rank ", rank, " (pid ", pid, ") has"), where = why_still(pid) + "; it was ";
  if (is_elsewhere(rank)) where = "; last heard of ";
  if (missed.size() > 1) who = list_of(missed) + " have", where = concat("; rank ", rank, " was last heard of ");
  control_->end_job(concat(who, " stopped: no heartbeat for ", seconds, " s", where, control_->whereabouts_of(rank)));
  for (int r : missed) control_->page().row(r).state.store(RankState::failed);  // nobody needs to wait for them
}

// With the ranks of other machines that have been missed as long: those of one that is lost.
std::vector<int> Monitor::missed_with(int rank) const {
  if (!is_elsewhere(rank)) return {rank};
  auto latest = peers_[size_t(rank)].heard + 2 * kBeatsOfAFarLook * options_.beat;
  std::vector<int> missed;
  for (int r : options_.elsewhere) {
    const Peer& peer = peers_[size_t(r)];
    bool silent = peer.beats > 0 && row(r).beats.load(std::memory_order_relaxed) == peer.beats && peer.heard <= latest;
    if (silent && row(r).state.load() == RankState::running && row(r).tracer.load() == 0) missed.push_back(r);
  }
  return missed;
}

// A rank of this machine before its first heartbeat. True when it has ended the job.
bool Monitor::watch_start(int rank) {
  Peer& peer = peers_[size_t(rank)];
  pid_t pid = row(rank).pid.load();
  if (is_elsewhere(rank) || pid == 0) return false;
  if (!peer.before) peer.before.emplace(pid);
  peer.before->look();
  if (peer.before->time() < options_.start_limit) return false;
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(peer.before->time()).count();
  control_->end_job(
      concat("rank ", rank, " (pid ", pid, ") has not begun and has done nothing for ", seconds, " s", why_still(pid)));
  control_->page().row(rank).state.store(RankState::failed);  // nobody needs to wait for it
  return true;
}

// A rank under a debugger is not judged. True for one; says so the first time.
bool Monitor::excuse(int rank) {
  Peer& peer = peers_[size_t(rank)];
  pid_t tracer = is_elsewhere(rank) ? row(rank).tracer.load() : tracer_of(row(rank).pid.load());
  if (tracer == 0) return false;
  if (!std::exchange(peer.excused, true))
    warn(concat("rank ", rank, " (pid ", row(rank).pid.load(), ") is under a debugger (pid ", tracer,
                "): nobody judges how long it takes"));
  return true;
}

void Monitor::watch_lane(int index) {
  Wait& wait = waits_[size_t(index)];
  LaneView view = control_->look(index);
  if (!view.waiting) {
    wait = Wait();
    return;
  }
  if (wait.sequence != view.place.sequence) wait = {view.place.sequence, now_};
  // A rank that has not come is worth a word sooner than a transfer in which everybody takes part.
  if (!wait.warned)
    wait.next_warning =
        wait.since + std::min(options_.stall_limit, view.late.empty() ? options_.warn_again : options_.warn_after);
  if (now_ - wait.since >= options_.deadlock_after) {
    std::vector<Stuck> found = find_deadlock(control_->page(), control_->rank(), index);
    if (found != wait.deadlock) wait.found = now_;
    // What is there now must stay: a thread may yet take a group's calls over (ProcessGroup::take_over).
    auto sure = options_.elsewhere.empty() ? options_.beat : 10 * options_.beat;
    if (!found.empty() && found == wait.deadlock && now_ - wait.found >= sure / 2)
      control_->end_job(control_->deadlock(found));
    wait.deadlock = std::move(found);
  }
  if (view.left && wait.left == Clock::time_point()) wait.left = now_;
  if (view.diverged || (view.left && now_ - wait.left >= options_.left_limit))
    control_->end_job(control_->divergence(index));
  if (now_ < wait.next_warning) return;
  if (std::ranges::any_of(view.late, [&](int r) { return excuse(r); })) {
    wait = Wait();
    return;
  }
  auto what = [&] {
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now_ - wait.since).count();
    return concat("ranks have waited for ", seconds, " s: ", control_->whereabouts(index));
  };
  if (now_ - wait.since >= options_.stall_limit)
    control_->end_job(concat("stall_limit is reached; ", what()));
  else if (view.speaker)
    warn(what());
  wait.warned = true;
  wait.next_warning = std::min(now_ + options_.warn_again, wait.since + options_.stall_limit);
}

void Monitor::read_signals() {
  if (asked_ == Clock::time_point() && control_->stop_requested()) asked_ = now_;
  signalfd_siginfo info;
  pollfd ready{options_.signals, POLLIN, 0};
  while (options_.signals >= 0 && poll(&ready, 1, 0) > 0) {
    if (read(options_.signals, &info, sizeof(info)) != sizeof(info)) return;
    Meaning meaning = meaning_of(int(info.ssi_signo));
    if (meaning == Meaning::end_at_once)
      control_->end_job(concat("interrupted ", interrupted_ ? "twice" : "after it was asked to end", " (SIGINT)"));
    terminated_ |= info.ssi_signo == SIGTERM;
    if (ends_ == Clock::time_point()) told_by_ = int(info.ssi_signo);
    if (meaning == Meaning::stop) {
      if (asked_ == Clock::time_point()) asked_ = now_;
      interrupted_ |= info.ssi_signo == SIGINT;
      control_->request_stop();
    } else if (meaning != Meaning::nothing && ends_ == Clock::time_point()) {
      ends_ = now_;
    }
  }
}

Monitor::Meaning Monitor::meaning_of(int signal) const {
  if (options_.ends_when_told) return Meaning::end;
  switch (signal) {
    case SIGINT:
      return !control_->stop_requested() || was_asked_within(kSameRequest) ? Meaning::stop : Meaning::end_at_once;
    case SIGUSR1:
      return Meaning::stop;
    case SIGTERM:  // after a while it comes because that has not helped
      if (asked_ == Clock::time_point()) return options_.saves_when_told ? Meaning::stop : Meaning::end;
      return was_asked_within(std::chrono::seconds(1)) ? Meaning::stop : Meaning::end;
    default:
      return options_.saves_when_told ? Meaning::stop : Meaning::nothing;
  }
}

bool Monitor::was_asked_within(Clock::duration time) const {
  return asked_ != Clock::time_point() && now_ - asked_ <= time;
}

// A launcher sends SIGTERM to the ranks that survive another, and kills them a second later: the cause is said first.
// Without a cause after a moment, the signal is the cause, where it is to end the job.
void Monitor::tell() {
  if (!options_.cause_file.empty() && control_->page().has_cause()) announce(control_->page(), options_.cause_file);
  // Where all processes are told at once, as systemd does, the launcher's request comes a moment after its ranks'
  // signal.
  if (asked_ > ends_ && !control_->page().has_cause()) ends_ = {};
  bool ends = ends_ != Clock::time_point();
  if (ends && !control_->page().has_cause() && now_ - ends_ > kMoment)
    control_->end_job(
        concat("rank ", control_->rank(), " (pid ", getpid(), ") was told to end (SIG", sigabbrev_np(told_by_), ")"));
  bool by_a_launcher = terminated_ && control_->size() > 1;
  if (options_.announce && (ends || by_a_launcher) && control_->page().has_cause()) announce(control_->page());
  // Who computes without an end comes to no wait that would throw: what was asked for happens.
  if (ends && control_->page().has_cause() && now_ - ends_ > kGraceAfterSignal) {
    signal(SIGTERM, SIG_DFL);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
    raise(SIGTERM);
  }
}

void Monitor::warn(const std::string& text) const {
  if (options_.warn)
    options_.warn(text);
  else
    std::fprintf(stderr, "shardgrad: %s\n", text.c_str());
}

}  // namespace shardgrad::dist
