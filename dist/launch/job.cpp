#include <shardgrad/dist/launch/job.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <shardgrad/dist/bootstrap/cores.h>
#include <shardgrad/dist/group/world.h>
#include <shardgrad/dist/os/launcher.h>
#include <shardgrad/dist/os/report.h>
#include <shardgrad/dist/watch/monitor.h>
#include <shardgrad/dist/watch/page_link.h>
#include <shardgrad/dist/watch/signals.h>

namespace shardgrad::dist {
namespace {

using Clock = std::chrono::steady_clock;

bool has_ended(const ControlPage& page, int rank) {
  RankState state = page.row(rank).state.load();
  return state == RankState::finished || state == RankState::failed;
}

bool all_ended(const ControlPage& page) {
  for (int r = 0; r < page.ranks(); ++r)
    if (!has_ended(page, r)) return false;
  return true;
}

// Where the launcher wants to be told, if it does.
std::string report_path() {
  const char* path = std::getenv("SHARDGRAD_CAUSE_FILE");
  return path ? path : "";
}

// Nobody started the ranks, or a launcher of others, such as mpirun or a batch system, which sends SIGTERM and SIGKILL
// a moment later.
bool hears_signals_itself(const Bootstrap& bootstrap) { return bootstrap.name() != "forked" && report_path().empty(); }

// One rank alone that has nothing to save ends as any program does.
void choose_signals(Signals& signals, const JobOptions& options, const Bootstrap& bootstrap) {
  if (options.when_told == WhenTold::ends && bootstrap.name() == "single" && report_path().empty())
    signals.give_back();
  else if (!hears_signals_itself(bootstrap))
    signals.ignore_hangups();  // what the launcher does with it, whose end ends the ranks, too
  else if (options.when_told != WhenTold::asks)
    signals.take_hangups();
  if (!options.takes_interrupts) signals.give_interrupts_back();
}

JobOptions complete(JobOptions options, const Bootstrap& bootstrap, int threads, int signals, bool see_each_other) {
  options.context.rank = bootstrap.rank();
  options.context.world_size = bootstrap.size();
  options.context.local_rank = bootstrap.local_rank();
  options.context.threads = threads;
  options.watch.processes = see_each_other && bootstrap.size() > 1;
  options.watch.parent = options.watch.processes && bootstrap.name() != "tcp";
  for (int r = 0; r < bootstrap.size(); ++r)
    if (bootstrap.ranks().node_rank(r) != bootstrap.node_rank()) options.watch.elsewhere.push_back(r);
  options.watch.signals = signals;
  options.watch.saves_when_told = options.when_told == WhenTold::saves && hears_signals_itself(bootstrap);
  options.watch.ends_when_told = options.when_told == WhenTold::ends;
  options.watch.start_limit = rendezvous_limit();
  options.watch.announce = bootstrap.name() != "forked";
  options.watch.cause_file = report_path();
  return options;
}

// A rank is watched once its first heartbeat is on this page, and those of other machines come a moment late. Nobody
// works before: a rank that stopped in that moment would be waited for without an end.
void await_first_beats(const ControlPage& page, Control& control, const WatchOptions& watch) {
  auto deadline = Clock::now() + std::min(watch.stall_limit, kLongestLimit);
  for (int r : watch.elsewhere)
    while (watch.processes && page.row(r).beats.load() == 0) {
      control.check();
      if (Clock::now() > deadline) fail_as(ErrorKind::rank_failed, "rank ", r, " on another machine does not start");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

// The body between a world that is ready and one that all ranks have left. Throws what ends the job.
int run_body(const std::function<int(Job&)>& body, Bootstrap& bootstrap, const ControlPage& page,
             const JobOptions& options) {
  Context context(options.context);
  auto control = std::make_shared<Control>(page, bootstrap.rank());
  Monitor monitor(control, options.watch);
  try {
    await_first_beats(page, *control, options.watch);
    int code = 0;
    {
      auto world = make_world(bootstrap, control, options.group);
      try {
        Job job(bootstrap, *world);
        code = body(job);
        context.backend(context.default_device()).compute().synchronize();
        world->stream().synchronize();
        control->finish();  // likewise
      } catch (...) {
        control->fail(std::current_exception());  // before the group goes, which its peers wait in
        throw;
      }
    }
    // The others may still need this rank's end of the control channel; and MPI's own way to wait spins.
    while (options.watch.processes && !all_ended(page)) {
      control->check();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return code;
  } catch (...) {
    control->fail(std::current_exception());
    throw;
  }
}

template <class Done> void wait_at_most(std::chrono::milliseconds limit, Done&& done) {
  for (auto deadline = Clock::now() + limit; !done() && Clock::now() < deadline;)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// Most faults before the ranks have met are the same on all of them: rank 0 says them, and its end ends the others.
// What only another rank has is said when that has not happened after a moment.
int end_before_the_job(std::exception_ptr error) {
  int code = exit_code(error, 1), rank = launched_rank();
  if (rank != 0) std::this_thread::sleep_for(std::chrono::seconds(2));
  std::string line = concat("shardgrad: ", rank != 0 ? concat("rank ", rank, ": ") : "", describe(error));
  if (report_path().empty() || !report_cause(report_path(), code, line)) std::fprintf(stderr, "%s\n", line.c_str());
  return code;
}

// This rank has failed, or ends because another has. Gives the others a moment, says why once, and ends the job.
int end_badly(Bootstrap& bootstrap, const ControlPage& page, std::exception_ptr error, const Signals& signals) {
  using namespace std::chrono_literals;
  page.claim_cause(bootstrap.rank(), exit_code(error, bootstrap.size()), describe(error));
  page.row(bootstrap.rank()).state.store(RankState::failed);
  wait_at_most(2s, [&] { return all_ended(page) || signals.pending(); });
  if (bootstrap.name() != "forked") announce(page, report_path());  // launch_local says it itself
  int code = page.header().code.load();
  if (bootstrap.name() == "mpi") alarm(5);  // mpirun may be stopped or gone, and MPI's way to end hang
  std::fflush(nullptr);                     // what the program has written to its files
  if (page.header().ending.exchange(1) == 0) {
    if (bootstrap.name() == "mpi" && bootstrap.ranks().node_count() > 1) end_launcher_after(10s);
    bootstrap.abort(code);
  }
  if (bootstrap.name() == "mpi") {  // the job is being ended around this rank, which must not end MPI in good order
    wait_at_most(3s, [&] { return signals.pending(); });
    _exit(code);
  }
  return code;
}

}  // namespace

bool Job::stop_requested() const { return world_.control().stop_requested(); }

int run_job(const std::function<int(Job&)>& body, const std::function<JobOptions(const Bootstrap&)>& configure) {
  Signals signals;  // whose mask the threads inherit that are started from now on
  std::unique_ptr<Bootstrap> bootstrap;
  if (!report_path().empty()) report_here(report_path(), launched_rank());
  try {
    bootstrap = bootstrap_from_environment();
  } catch (...) {
    return end_before_the_job(std::current_exception());
  }
  ControlPage page = make_private_page(bootstrap->size());  // until the ranks have one in common
  std::unique_ptr<PageLink> link;
  try {
    std::string reason;
    page = make_shared_page(*bootstrap, reason);
    page.row(bootstrap->rank()).pid.store(getpid());
    link = link_pages(*bootstrap, page, reason);
    if (!reason.empty() && bootstrap->rank() == 0)
      std::fprintf(stderr,
                   "shardgrad: ranks cannot watch over each other (a failure is found by the launcher only): %s\n",
                   reason.c_str());
    JobOptions options = configure ? configure(*bootstrap) : JobOptions();
    choose_signals(signals, options, *bootstrap);
    CpuShare cpus(*bootstrap, options.context.threads);
    if (bootstrap->rank() == 0 && !report_path().empty())
      report_met(report_path());  // from here on the ranks watch each other
    options = complete(std::move(options), *bootstrap, cpus.threads(), signals.descriptor(), reason.empty());
    int code = run_body(body, *bootstrap, page, options);
    bootstrap->finish();
    return code;
  } catch (...) {
    return end_badly(*bootstrap, page, std::current_exception(), signals);
  }
}

}  // namespace shardgrad::dist
