#include <shardgrad/dist/os/children.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/machine.h>

namespace shardgrad::dist {

Children::Children(Ready ready, int end, int stop) : end_(end), stop_(stop), ready_(std::move(ready)) {
  sigemptyset(&taken_);
  for (int number : {SIGINT, SIGTERM, SIGUSR1, SIGTSTP, SIGCONT, SIGCHLD}) sigaddset(&taken_, number);
  struct sigaction hangup;
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&taken_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &taken_, &before_);
  signals_ = signalfd(-1, &taken_, SFD_CLOEXEC | SFD_NONBLOCK);
}

Children::~Children() {
  signal(SIGKILL);
  while (alive() > 0) wait();
  signalfd_siginfo late;  // one that has come too late is not for what this process does next
  while (read(signals_, &late, sizeof(late)) == sizeof(late)) {
  }
  close(signals_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

static std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Later variables win.
static std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    std::string text = *entry, name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(variables, [&](const std::string& v) { return v.starts_with(name); })) all.push_back(text);
  }
  all.insert(all.end(), variables.begin(), variables.end());
  return all;
}

// True in the child.
bool Children::fork_child(int death_signal) {
  pid_t parent = getpid(), pid = fork();
  if (pid < 0)
    fail_as(ErrorKind::missing, "launch: a process cannot be started: ", std::strerror(errno), "; ", kFewerOrMore);
  if (pid > 0) {
    setpgid(pid, pid);
    children_.push_back({pid, true});
    return false;
  }
  setpgid(0, 0);  // only calls that are safe after fork
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(127);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  int nothing = open("/dev/null", O_RDONLY);  // a process group of its own may not read the terminal
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  return true;
}

void Children::start(const std::vector<std::string>& argv, const std::vector<std::string>& variables, int death_signal,
                     int output) {
  std::vector<std::string> environment = environment_with(variables);
  std::vector<char*> arguments = pointers(argv), entries = pointers(environment);
  if (!fork_child(death_signal)) return;
  dup2(output, STDOUT_FILENO);
  execvpe(arguments[0], arguments.data(), entries.data());
  _exit(127);
}

void Children::start(const std::function<int()>& deed, int death_signal) {
  std::cout.flush(), std::fflush(nullptr);  // or the child would write it, too
  if (!fork_child(death_signal)) return;
  int code = 1;
  try {
    code = deed();
  } catch (const std::exception& error) {  // it must not go on as another launcher
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::cout.flush(), std::fflush(nullptr);
  _exit(code);
}

int Children::alive() const { return int(std::ranges::count_if(children_, &Child::alive)); }

void Children::signal(int number) {
  for (const Child& child : children_)
    if (child.alive) kill(child.pid, number);
}

std::vector<Children::Ended> Children::wait() {
  pollfd ready{signals_, POLLIN, 0};
  poll(&ready, 1, 100);
  read_signals();
  ask_who_is_ready();
  std::vector<Ended> ended;
  for (size_t i = 0; i < children_.size(); ++i) {
    int status = 0;
    if (!children_[i].alive || waitpid(children_[i].pid, &status, WNOHANG) != children_[i].pid) continue;
    children_[i].alive = false;
    ended.push_back({int(i), children_[i].pid, status});
  }
  return ended;
}

void Children::ask_who_is_ready() {
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (!child.alive || child.asked == asks_ || !ready_(int(i))) continue;
    child.asked = asks_;
    kill(child.pid, SIGUSR1);
  }
}

void Children::read_signals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    int number = int(info.ssi_signo);
    if (number == SIGINT || number == SIGTERM) {
      auto now = std::chrono::steady_clock::now();
      if (requested_ && now - *requested_ > kSameRequest) signal(end_);
      if (requested_) continue;
      requested_ = now;
      ++asks_;
      std::fprintf(stderr, "shardgrad: asking the ranks to end, which saves a training run; once more ends them now\n");
    } else if (number == SIGHUP || number == SIGUSR1) {  // systems end a session by SIGTERM and SIGHUP together
      ++asks_;
    } else if (number == SIGTSTP) {
      signal(stop_);
      raise(SIGSTOP);
    } else if (number == SIGCONT) {
      signal(SIGCONT);
    }
  }
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace shardgrad::dist
