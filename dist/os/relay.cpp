#include <shardgrad/dist/os/relay.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {

Relay::Relay() {
  if (pipe2(ends_, O_CLOEXEC) != 0) fail_as(ErrorKind::missing, "launch: there is no pipe: ", std::strerror(errno));
  sigset_t all, before;  // signals are for the thread that watches the children; a broken pipe is an error of its write
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = Thread([this] { pass_on(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool Relay::finish() {
  if (!thread_.joinable()) return !lost_;
  close(ends_[1]);
  ended_ = true;
  thread_.join();
  close(ends_[0]);
  return !lost_;
}

// To the end of the pipe; or, where a process that was left over holds it open, what was in it when the others had
// ended.
void Relay::pass_on() {
  char text[1 << 14];
  std::optional<int> left;  // bytes, once they have ended
  while (!left || *left > 0) {
    if (!left && ended_ && ioctl(ends_[0], FIONREAD, &left.emplace(0)) != 0) return;
    pollfd ready{ends_[0], POLLIN, 0};
    if (poll(&ready, 1, 50) <= 0) continue;
    ssize_t count = read(ends_[0], text, sizeof(text));
    if (count == 0 || (count < 0 && errno != EINTR)) return;
    if (count > 0) write_out(text, size_t(count));
    if (left) *left -= int(std::max<ssize_t>(count, 0));
  }
}

void Relay::write_out(const char* text, size_t count) {
  for (size_t done = 0; done < count && !lost_;) {
    ssize_t put = ::write(STDOUT_FILENO, text + done, count - done);
    if (put >= 0) {
      done += size_t(put);
    } else if (errno == EAGAIN) {
      pollfd ready{STDOUT_FILENO, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else {
      lost_ = errno != EINTR;
    }
  }
}

}  // namespace shardgrad::dist
