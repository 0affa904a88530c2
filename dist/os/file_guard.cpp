#include <shardgrad/dist/os/file_guard.h>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace shardgrad::dist {
namespace {

// Of a process with threads: calls to the system only.
[[noreturn]] void watch(int end, const std::vector<std::string>& paths) {
  dup2(end, STDIN_FILENO);
  close_range(STDIN_FILENO + 1, ~0U, 0);  // whoever reads our output must not wait for this process
  char word;
  ssize_t got;
  while ((got = read(STDIN_FILENO, &word, 1)) < 0 && errno == EINTR) {
  }
  if (got != 1)
    for (const std::string& path : paths) unlink(path.c_str());
  _exit(0);
}

}  // namespace

FileGuard::FileGuard(const std::vector<std::string>& paths) {
  int ends[2];
  if (paths.empty() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  child_ = fork();
  if (child_ == 0) {
    close(ends[1]);
    setpgid(0, 0);
    watch(ends[0], paths);
  }
  if (child_ > 0) setpgid(child_, child_);  // in both: neither may go on before
  close(ends[0]);
  alive_ = ends[1];
}

void FileGuard::keep() {
  if (child_ > 0) send(alive_, "", 1, MSG_NOSIGNAL);
}

FileGuard::~FileGuard() {
  if (alive_ >= 0) close(alive_);
  if (child_ > 0) waitpid(child_, nullptr, 0);
}

}  // namespace shardgrad::dist
