#include <shardgrad/dist/forked.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/children.h>
#include <shardgrad/dist/process_watch.h>
#include <shardgrad/dist/roll_call.h>
#include <shardgrad/dist/shared_memory.h>

namespace shardgrad::dist {
namespace {

constexpr auto kGrace = std::chrono::milliseconds(2500);

size_t bootstrap_bytes(int size) { return (local_bootstrap_bytes(size) + 127) / 128 * 128; }
size_t job_bytes(int size) { return bootstrap_bytes(size) + ControlPage::page_bytes(size); }

ControlPage page_of(const std::shared_ptr<SharedMemory>& memory, int size) {
  return ControlPage({memory, memory->data() + bootstrap_bytes(size)}, size);
}

class ForkedBootstrap final : public Bootstrap {
 public:
  ForkedBootstrap(std::shared_ptr<SharedMemory> memory, int rank, int size)
      : Bootstrap("forked", rank, size, RankMap(std::vector<std::string>(size_t(size), "here"))),
        memory_(memory),
        local_(make_local_bootstrap("forked", {memory, memory->data()}, rank, size)) {
    page_of(memory_, size).row(rank).pid.store(getpid());  // it is here, and waits for the others
  }
  std::vector<std::string> exchange(const std::string& mine) override { return local_->exchange(mine); }
  ControlPage control_page(std::string&) override { return page_of(memory_, size()); }

 private:
  std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<Bootstrap> local_;
};

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  SG_CHECK(text, "SHARDGRAD_JOB_FD is set but ", name, " is not; start the program with shardgrad launch");
  return std::atoi(text);
}

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
RankProcesses missing_ranks(const ControlPage& page, const Children& children) {
  RankProcesses missing;
  bool waited_for = false;
  for (int rank = 0; rank < page.ranks(); ++rank) {
    bool here = page.row(rank).pid.load() != 0;
    waited_for |= here;
    if (page.row(rank).beats.load() > 0 || !children.lives(rank)) continue;
    std::vector<pid_t> family = family_of(children.pid(rank));  // a shell's, whose program is the rank
    if (!here || std::ranges::any_of(family, [](pid_t pid) { return !why_still(pid).empty(); }))
      missing[rank] = std::move(family);
  }
  return waited_for ? missing : RankProcesses();
}

}  // namespace

std::unique_ptr<Bootstrap> forked_bootstrap_from_environment() {
  if (!std::getenv("SHARDGRAD_JOB_FD")) return nullptr;
  int descriptor = environment_number("SHARDGRAD_JOB_FD"), size = environment_number("SHARDGRAD_WORLD_SIZE");
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  auto memory = SharedMemory::adopt(descriptor, job_bytes(size));
  return std::make_unique<ForkedBootstrap>(memory, environment_number("SHARDGRAD_RANK"), size);
}

int launch_local(int n, const std::vector<std::string>& argv, int threads) {
  SG_CHECK(n >= 1, "launch: ", n, " ranks are not possible");
  SG_CHECK(!argv.empty(), "launch: there is no program to run");
  RollCall roll_call;
  auto memory = SharedMemory::create("shardgrad-job", job_bytes(n));
  fcntl(memory->descriptor(), F_SETFD, 0);  // the ranks inherit it
  ControlPage page = page_of(memory, n);
  Children children;
  for (int rank = 0; rank < n; ++rank) {
    std::vector<std::string> variables = {concat("SHARDGRAD_RANK=", rank), concat("SHARDGRAD_WORLD_SIZE=", n),
                                          concat("SHARDGRAD_JOB_FD=", memory->descriptor())};
    if (threads > 0) variables.push_back(concat("OMP_NUM_THREADS=", threads));
    children.start(argv, variables, SIGKILL);
  }
  fcntl(memory->descriptor(), F_SETFD, FD_CLOEXEC);

  int code = 0;
  bool failed = false;
  auto deadline = std::chrono::steady_clock::time_point::max();
  while (children.alive() > 0) {
    for (const Children::Ended& ended : children.wait()) {
      judge(page, ended.index, ended);
      if (code == 0) code = exit_code_of(ended.status);
      failed |= exit_code_of(ended.status) != 0 && page.row(ended.index).state.load() != RankState::finished;
    }
    std::string missing = page.has_cause() ? "" : roll_call.look(missing_ranks(page, children));
    if (!missing.empty()) page.claim_cause(-1, int(ErrorKind::rank_failed), missing);
    auto now = std::chrono::steady_clock::now();
    if ((failed || page.has_cause()) && deadline > now + kGrace) deadline = now + kGrace;
    if (now > deadline) children.signal(SIGKILL);
  }
  if (!page.has_cause()) return code;
  announce(page);
  return page.header().code.load();
}

}  // namespace shardgrad::dist
