#include <shardgrad/dist/os/launcher.h>

#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include <shardgrad/dist/os/process_watch.h>

namespace shardgrad::dist {
namespace {

bool is_launcher_of_one_job(pid_t pid) {
  static constexpr const char* kNames[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun"};
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// SIGTERM would only make it ask the machine that is gone.
[[noreturn]] void wait_and_kill(const ProcessWatch& launcher, std::chrono::milliseconds patience) {
  setsid();  // a launcher kills the ranks' process groups
  pollfd death{launcher.descriptor(), POLLIN, 0};
  for (int end = 0; end < launcher.descriptor(); ++end) close(end);
  close_range(unsigned(launcher.descriptor()) + 1, ~0U, 0);  // whoever reads our output must not wait for this process
  if (poll(&death, 1, int(patience.count())) != 0) _exit(0);
  for (pid_t pid : family_of(launcher.pid()))
    if (pid != getpid()) kill(pid, SIGKILL);
  _exit(0);
}

}  // namespace

void end_launcher_after(std::chrono::milliseconds patience) {
  pid_t parent = getppid();
  ProcessWatch launcher(parent);
  if (launcher.descriptor() < 0 || !is_launcher_of_one_job(parent) || getppid() != parent) return;
  if (fork() == 0) wait_and_kill(launcher, patience);
}

}  // namespace shardgrad::dist
