#include <shardgrad/dist/launch/launch_local.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/forked.h>
#include <shardgrad/dist/bootstrap/roll_call.h>
#include <shardgrad/dist/os/children.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/watch/control_page.h>

namespace shardgrad::dist {
namespace {

constexpr auto kGrace = std::chrono::milliseconds(2500);

// What one rank's end means for the job. One that has finished may end with any code of its own.
void judge(const ControlPage& page, int rank, const Children::Ended& ended) {
  RankState state = page.row(rank).state.load();
  bool good = WIFEXITED(ended.status) && (WEXITSTATUS(ended.status) == 0 || state == RankState::finished);
  if (state == RankState::failed || (good && state != RankState::running)) return;
  std::string how = WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 127 && state == RankState::absent
                        ? "the program could not be started"
                        : describe_status(ended.status);
  page.claim_cause(rank, int(ErrorKind::rank_failed), concat("rank ", rank, " (pid ", ended.pid, ") died: ", how));
  page.row(rank).state.store(RankState::failed);  // nobody needs to wait for it
}

// The ranks that have not begun, once one is there that waits for them: programs of others have no such ranks. One that
// waits is not missing, unless something stops it.
RankProcesses missing_ranks(const ControlPage& page, const ForkedMemory& memory, const Children& children) {
  RankProcesses missing;
  bool waited_for = false;
  for (int rank = 0; rank < page.ranks(); ++rank) {
    bool here = memory.here(rank).load();
    waited_for |= here;
    if (page.row(rank).beats.load() > 0 || !children.lives(rank)) continue;
    std::vector<pid_t> family = family_of(children.pid(rank));  // a shell's, whose program is the rank
    if (!here || std::ranges::any_of(family, [](pid_t pid) { return !why_still(pid).empty(); }))
      missing[rank] = std::move(family);
  }
  return waited_for ? missing : RankProcesses();
}

// One that has ended without having come is waited for by those that have; programs of others have no such ranks.
std::string who_left_before_it_came(const ForkedMemory& memory, const Children& children, int ranks) {
  bool waited_for = false;
  int gone = -1;
  for (int rank = 0; rank < ranks; ++rank) {
    bool here = memory.here(rank).load();
    waited_for |= here && children.lives(rank);
    if (!here && !children.lives(rank)) gone = rank;
  }
  return waited_for && gone >= 0 ? concat("rank ", gone, " (pid ", children.pid(gone),
                                          ") has ended before it had begun; the other ranks wait for it")
                                 : "";
}

// Until all ranks have ended: says in the page why one has that should not have, and ends the others then. Returns the
// first exit code that is not 0.
int watch_ranks(Children& children, const ControlPage& page, const ForkedMemory& memory) {
  RollCall roll_call;
  int code = 0;
  bool failed = false;
  auto deadline = std::chrono::steady_clock::time_point::max();
  while (children.alive() > 0) {
    for (const Children::Ended& ended : children.wait()) {
      judge(page, ended.index, ended);
      if (code == 0) code = exit_code_of(ended.status);
      failed |= exit_code_of(ended.status) != 0 && page.row(ended.index).state.load() != RankState::finished;
    }
    std::string missing = page.has_cause() ? "" : who_left_before_it_came(memory, children, page.ranks());
    if (missing.empty() && !page.has_cause()) missing = roll_call.look(missing_ranks(page, memory, children));
    if (!missing.empty()) page.claim_cause(-1, int(ErrorKind::rank_failed), missing);
    auto now = std::chrono::steady_clock::now();
    if ((failed || page.has_cause()) && deadline > now + kGrace) deadline = now + kGrace;
    if (now > deadline) children.signal(SIGKILL);
  }
  return code;
}

// What a rank is told by its environment.
std::vector<std::string> variables_of(int rank, int n, const ForkedMemory& memory) {
  return {concat("SHARDGRAD_RANK=", rank), concat("SHARDGRAD_WORLD_SIZE=", n),
          concat("SHARDGRAD_JOB_FD=", memory.name())};
}

}  // namespace

int launch_local(int n, const std::vector<std::string>& argv, int threads) {
  ForkedMemory memory(n, ControlPage::page_bytes(n));
  fcntl(memory.descriptor(), F_SETFD, 0);  // the ranks inherit it
  ControlPage page(memory.control(), n);
  Children children([&](int rank) { return memory.here(rank).load(); });
  for (int rank = 0; rank < n; ++rank) {
    std::vector<std::string> variables = variables_of(rank, n, memory);
    if (threads > 0) variables.push_back(concat("OMP_NUM_THREADS=", threads));
    children.start(argv, variables, SIGKILL);
  }
  fcntl(memory.descriptor(), F_SETFD, FD_CLOEXEC);
  int code = watch_ranks(children, page, memory);
  if (!page.has_cause()) return code;
  announce(page);
  return page.header().code.load();
}

void spawn(int world_size, const std::function<void(ProcessGroup&)>& body, const SpawnOptions& options) {
  SG_CHECK(world_size >= 1, "spawn: ", world_size, " ranks are not possible");
  SG_CHECK(!Context::current(), "spawn: called inside a context (of a rank, or one that the program has made), whose ",
           "threads and devices new processes do not have; call it from main, before a context is made");
  SG_CHECK(launched_processes() == 1 && !std::getenv("SHARDGRAD_JOB_FD"), "spawn: a launcher has started this process ",
           "as one of several ranks; run the body as dist::run_job does, or start the program alone");
  ForkedMemory memory(world_size, ControlPage::page_bytes(world_size));
  ControlPage page(memory.control(), world_size);
  Children children([&](int rank) { return memory.here(rank).load(); });
  for (int rank = 0; rank < world_size; ++rank)
    children.start(
        [&] {
          for (std::string& variable : variables_of(rank, world_size, memory)) {
            size_t at = variable.find('=');
            setenv(variable.substr(0, at).c_str(), variable.c_str() + at + 1, 1);
          }
          auto run = [&](Job& job) {
            body(job.world());
            return 0;
          };
          return run_job(run, [&](const Bootstrap&) { return options; });
        },
        SIGKILL);
  int code = watch_ranks(children, page, memory);
  if (!page.has_cause() && code == 0) return;
  SG_CHECK(page.has_cause(), "spawn: a rank ended with exit code ", code);
  int rank = page.header().rank.load();
  std::string cause = page.cause();
  bool names_it = rank < 0 || cause.starts_with("rank ");
  throw Error(ErrorKind(page.header().code.load()), names_it ? cause : concat("rank ", rank, " failed: ", cause));
}

}  // namespace shardgrad::dist
