#include <shardgrad/dist/watch/signals.h>

#include <poll.h>
#include <sys/signalfd.h>
#include <ucontext.h>
#include <unistd.h>

#include <iterator>
#include <utility>

namespace shardgrad::dist {

// A thread that was there before this rank's guard does not block its signals: it does so from its first one on, and
// passes that one on to the process, whose guard reads it.
static void pass_on(int number, siginfo_t*, void* interrupted) {
  sigaddset(&static_cast<ucontext_t*>(interrupted)->uc_sigmask, number);  // in force when this returns
  kill(getpid(), number);
}

Signals::Signals(bool with_process) : with_process_(with_process) {
  sigemptyset(&mask_);
  pthread_sigmask(SIG_BLOCK, nullptr, &before_);
  descriptor_ = signalfd(-1, &mask_, SFD_CLOEXEC | SFD_NONBLOCK);
  for (int i = 0; i < kAlways; ++i) take(i);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &too_large_);  // a file that may not grow further is an error of its write,
  sigaction(SIGPIPE, &ignore, &no_reader_);  // as is a pipe that nobody reads any more
}

Signals::~Signals() {
  close(descriptor_);
  sigaction(SIGXFSZ, &too_large_, nullptr);
  sigaction(SIGPIPE, &no_reader_, nullptr);
  struct sigaction& late = actions_[1];  // SIGUSR1
  if (with_process_ && late.sa_handler == SIG_DFL) late.sa_handler = SIG_IGN;
  if (ignores_hangups_ && !with_process_) sigaction(SIGHUP, &actions_[3], nullptr);
  for (size_t i = 0; i < std::size(kSignals); ++i)
    if (taken_[i]) sigaction(kSignals[i], &actions_[i], nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Signals::take(int index) {
  struct sigaction handled {};
  handled.sa_sigaction = pass_on;
  handled.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaddset(&mask_, kSignals[index]);
  sigaction(kSignals[index], &handled, &actions_[index]);
  taken_[index] = true;
  pthread_sigmask(SIG_BLOCK, &mask_, nullptr);
  signalfd(descriptor_, &mask_, SFD_CLOEXEC | SFD_NONBLOCK);
}

void Signals::give(int index) {
  if (!std::exchange(taken_[index], false)) return;
  sigdelset(&mask_, kSignals[index]);
  signalfd(descriptor_, &mask_, SFD_CLOEXEC | SFD_NONBLOCK);
  sigaction(kSignals[index], &actions_[index], nullptr);
  sigset_t given;
  sigemptyset(&given);
  sigaddset(&given, kSignals[index]);
  if (sigismember(&before_, kSignals[index]) == 0) pthread_sigmask(SIG_UNBLOCK, &given, nullptr);
}

void Signals::give_back() {
  for (size_t i = 0; i < std::size(kSignals); ++i) give(int(i));
}

void Signals::give_interrupts_back() { give(2); }

void Signals::take_hangups() {
  struct sigaction now {};
  sigaction(SIGHUP, nullptr, &now);
  if (now.sa_handler != SIG_IGN) take(3);
}

void Signals::ignore_hangups() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGHUP, &ignore, &actions_[3]);
  ignores_hangups_ = true;
}

bool Signals::taken() {
  struct sigaction now {};
  sigaction(SIGTERM, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == pass_on;
}

bool Signals::pending() const {
  pollfd ready{descriptor_, POLLIN, 0};
  return poll(&ready, 1, 0) > 0;
}

}  // namespace shardgrad::dist
