#include <shardgrad/dist/os/process_watch.h>

#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {

ProcessWatch::ProcessWatch(pid_t pid) : pid_(pid) {
  descriptor_ = int(syscall(SYS_pidfd_open, pid, 0));
  gone_ = descriptor_ < 0 && errno == ESRCH;
}

ProcessWatch::~ProcessWatch() {
  if (descriptor_ >= 0) close(descriptor_);
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : pid_(other.pid_), descriptor_(std::exchange(other.descriptor_, -1)), gone_(other.gone_) {}

ProcessWatch& ProcessWatch::operator=(ProcessWatch&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(gone_, other.gone_);
  return *this;
}

bool ProcessWatch::died() const {
  if (gone_) return true;
  pollfd poll_entry{descriptor_, POLLIN, 0};
  return descriptor_ >= 0 && poll(&poll_entry, 1, 0) > 0;
}

// The fields of /proc/PID/stat after the command's name, which may itself hold spaces and brackets.
static std::istringstream stat_fields(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  size_t end = text.rfind(')');
  return std::istringstream(end == text.npos ? "" : text.substr(end + 1));
}

// Asks the pidfd itself, which newer kernels (6.15) answer even after the process has been waited for.
static bool exit_status_of(int descriptor, int& status) {
  struct {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t exit_code;
    uint32_t rest[16];
  } info{};
  static_assert(offsetof(decltype(info), exit_code) == 60);
  constexpr uint64_t kExit = 1u << 3;
  info.mask = kExit;
  unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, 0xff, 11, 64);
  if (ioctl(descriptor, request, &info) != 0 || !(info.mask & kExit)) return false;
  status = info.exit_code;
  return true;
}

// A process that its parent has not waited for yet shows its state, Z, and as the last field its status.
static bool zombie_status_of(pid_t pid, int& status) {
  std::istringstream fields = stat_fields(pid);
  std::string field, last;
  if (!(fields >> field) || field != "Z") return false;
  while (fields >> field) last = field;
  status = std::atoi(last.c_str());
  return true;
}

std::string ProcessWatch::how_it_ended() const {
  int status = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {  // its parent may be waiting for it between the two questions
    if (zombie_status_of(pid_, status) || (descriptor_ >= 0 && exit_status_of(descriptor_, status)))
      return describe_status(status);
    usleep(1000);
  }
  return "";
}

std::string describe_status(int status) {
  if (!WIFSIGNALED(status)) return concat("exited with code ", WEXITSTATUS(status));
  const char* name = sigdescr_np(WTERMSIG(status));
  return concat("killed by signal ", WTERMSIG(status), name ? concat(" (", name, ")") : "");
}

pid_t tracer_of(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("TracerPid:")) return pid_t(std::atoi(line.c_str() + 10));
  return 0;
}

static std::string state_of(pid_t pid) {
  std::istringstream fields = stat_fields(pid);
  std::string state;
  fields >> state;
  return state;
}

bool stands_still(pid_t pid) {
  std::string state = state_of(pid);
  return state == "T" || state == "t" || state == "Z" || state == "X" || (kill(pid, 0) != 0 && errno == ESRCH);
}

std::string why_still(pid_t pid) {
  std::string state = state_of(pid);
  if (state == "T" || state == "t") return " (stopped by a signal)";
  return state == "D" ? " (in a system call that does not end, as on a file system that does not answer)" : "";
}

// A process that has ended meanwhile has no children.
std::vector<pid_t> family_of(pid_t pid) {
  std::vector<pid_t> family = {pid};
  for (size_t i = 0; i < family.size(); ++i) {
    std::error_code gone;
    std::filesystem::directory_iterator threads(concat("/proc/", family[i], "/task"), gone), end;
    for (; !gone && threads != end; threads.increment(gone)) {
      std::ifstream file(threads->path() / "children");
      for (pid_t child; file >> child;) family.push_back(child);
    }
  }
  return family;
}

// Time of all its threads on a CPU, in ticks of the clock; -1 when it is gone.
static int64_t ticks_of(pid_t pid) {
  std::istringstream fields = stat_fields(pid);
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  int64_t user = 0, system = 0;
  return fields >> user >> system ? user + system : -1;
}

void Stillness::look() {
  constexpr std::chrono::seconds kPause(5);
  auto now = Clock::now();
  int64_t ticks = ticks_of(pid_);
  if (ticks < 0 || ticks != ticks_ || now - seen_ > kPause || tracer_of(pid_) != 0) since_ = now;
  ticks_ = ticks;
  seen_ = now;
}

}  // namespace shardgrad::dist
