#include <shardgrad/dist/os/command.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include <shardgrad/dist/os/children.h>

namespace shardgrad::dist {
namespace {

using Clock = std::chrono::steady_clock;

std::optional<pid_t> spawn(const std::vector<std::string>& argv, int output) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  int error = posix_spawnp(&pid, words[0], &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? std::optional(pid) : std::nullopt;
}

// Until all who can write have gone; false when the time is over before. Whoever says more than fits is heard to the
// end.
bool read_all(int input, Clock::time_point deadline, std::string& text) {
  constexpr size_t kMost = size_t(64) << 10;
  char piece[4096];
  while (Clock::now() < deadline) {
    pollfd ready{input, POLLIN, 0};
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (poll(&ready, 1, int(left.count()) + 1) <= 0) continue;
    ssize_t count = read(input, piece, sizeof piece);
    if (count <= 0) return true;
    text.append(piece, std::min(size_t(count), kMost - text.size()));
  }
  return false;
}

bool ended(pid_t pid, Clock::time_point deadline, int& status) {
  while (waitpid(pid, &status, WNOHANG) != pid) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace

CommandOutput output_of(const std::vector<std::string>& argv, std::chrono::milliseconds limit) {
  CommandOutput output;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {.code = 127};
  auto deadline = Clock::now() + limit;
  std::optional<pid_t> pid = spawn(argv, ends[1]);
  close(ends[1]);
  int status = 0;
  if (pid) output.in_time = read_all(ends[0], deadline, output.text) && ended(*pid, deadline, status);
  close(ends[0]);
  if (!pid) return {.code = 127};
  if (!output.in_time) {
    kill(-*pid, SIGKILL);
    waitpid(*pid, &status, 0);
  }
  output.code = exit_code_of(status);
  return output;
}

}  // namespace shardgrad::dist
