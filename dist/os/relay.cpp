#include <shardgrad/dist/os/relay.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {

Relay::Relay() {
  if (pipe2(ends_, O_CLOEXEC) != 0) fail_as(ErrorKind::missing, "launch: there is no pipe: ", std::strerror(errno));
  thread_ = std::thread([this] { pass_on(); });
}

bool Relay::finish() {
  if (!thread_.joinable()) return !lost_;
  close(ends_[1]);
  ended_ = true;
  thread_.join();
  close(ends_[0]);
  return !lost_;
}

// To the end of the pipe; or, where a process that was left over holds it open, until nothing comes any more.
void Relay::pass_on() {
  sigset_t broken_pipe;  // is an error of the write
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  char text[1 << 14];
  for (;;) {
    bool ended = ended_;
    pollfd ready{ends_[0], POLLIN, 0};
    if (poll(&ready, 1, 50) <= 0) {
      if (ended) return;
      continue;
    }
    ssize_t count = read(ends_[0], text, sizeof(text));
    if (count == 0 || (count < 0 && errno != EINTR)) return;
    if (count > 0) write_out(text, size_t(count));
  }
}

void Relay::write_out(const char* text, size_t count) {
  for (size_t done = 0; done < count && !lost_;) {
    ssize_t put = write(STDOUT_FILENO, text + done, count - done);
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
