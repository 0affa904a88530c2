#include <shardgrad/dist/os/launcher.h>

#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include <shardgrad/dist/os/process_watch.h>

namespace shardgrad::dist {
namespace {

std::string first_line(pid_t pid, const char* file) {
  std::ifstream text("/proc/" + std::to_string(pid) + "/" + file);
  std::string line;
  std::getline(text, line);
  return line;
}

bool is_launcher_of_one_job(pid_t pid) {
  static constexpr const char* kNames[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun"};
  return std::ranges::find(kNames, first_line(pid, "comm")) != std::end(kNames);
}

pid_t parent_of(pid_t pid) {
  std::string line = first_line(pid, "stat");
  size_t name_ends = line.rfind(')');  // "4711 (a name) S 4710 …"
  return name_ends + 4 < line.size() ? pid_t(std::atoi(line.c_str() + name_ends + 4)) : 0;
}

// Between it and this process there may be a script.
pid_t launcher_above() {
  pid_t pid = getppid();
  while (pid > 1 && !is_launcher_of_one_job(pid)) pid = parent_of(pid);
  return pid > 1 ? pid : 0;
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
  pid_t pid = launcher_above();
  if (pid == 0) return;
  ProcessWatch launcher(pid);
  if (launcher.descriptor() < 0 || launcher_above() != pid) return;
  if (fork() == 0) wait_and_kill(launcher, patience);
}

}  // namespace shardgrad::dist
