#include <shardgrad/train/checkpoint/run_lock.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <utility>

#include <shardgrad/core/error.h>
#include <shardgrad/core/thread.h>
#include <shardgrad/dist/os/host_name.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train {
namespace {

constexpr std::chrono::seconds kBeat{10}, kForgotten{60};

std::string this_job() {
  char when[64] = "";
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &parts));
  return concat("process ", getpid(), " on ", dist::host_name(), " since ", when);
}

// Whether the open file is still the one of that name: who had the lock before may have removed it.
bool is_named(int file, const std::string& path) {
  struct stat opened, named;
  return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

bool knows_no_flock(int error) { return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL; }

// By the clock of whoever keeps the files, which may not be this machine's.
bool is_forgotten(const std::string& path) {
  std::string probe = concat(path, "-", getpid());
  write_file(probe, "");
  struct stat lock, now;
  bool known = stat(path.c_str(), &lock) == 0 && stat(probe.c_str(), &now) == 0;
  unlink(probe.c_str());
  return known && now.st_mtime - lock.st_mtime > kForgotten.count();
}

}  // namespace

// Touches the file until it is destroyed.
struct RunLock::Heart {
  explicit Heart(int file) : file(file), thread([this] { beat(); }) {}
  ~Heart() {
    {
      std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_one();
    thread.join();
  }
  void beat() {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kBeat, [this] { return ends; })) futimens(file, nullptr);
  }

  int file;
  std::mutex mutex;
  std::condition_variable changed;
  bool ends = false;
  Thread thread;
};

RunLock::RunLock(const std::string& run) : run_(run), path_(run + "/lock"), job_(this_job()) { acquire(); }

void RunLock::acquire() {
  while (!take())
    if (file_ >= 0) close(std::exchange(file_, -1));
  write_owner();
}

// Where a lock is seen by one machine only, the job that came last has written its name.
bool RunLock::is_mine() const { return is_named(file_, path_) && read_file(path_) == job_ + "\n"; }

RunLock::~RunLock() {
  heart_.reset();
  if (is_mine()) unlink(path_.c_str());
  close(file_);
}

void RunLock::check() {
  if (is_mine()) return;
  if (access(path_.c_str(), F_OK) != 0 && errno == ENOENT) {
    heart_.reset();
    close(std::exchange(file_, -1));
    return acquire();
  }
  fail("this job has lost '", path_, "' to another one (", read_file(path_).substr(0, 200),
       "); it saves nothing more in '", run_, "'");
}

// False: try again, for the file that was there has gone meanwhile.
bool RunLock::take() {
  file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  bool is_new = file_ >= 0;
  if (!is_new && errno == EEXIST) {
    file_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (file_ < 0 && errno == ENOENT) return false;
  }
  if (file_ < 0) cannot("write", path_);
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return is_named(file_, path_);
  int error = errno;
  if (knows_no_flock(error)) {
    if (is_new) {
      heart_ = std::make_unique<Heart>(file_);
      return true;
    }
    if (is_forgotten(path_)) {
      unlink(path_.c_str());
      return false;
    }
  }
  close(std::exchange(file_, -1));
  errno = error;
  if (error != EWOULDBLOCK && !knows_no_flock(error)) cannot("lock", path_);
  refuse();
}

void RunLock::refuse() const {
  std::string owner = read_file(path_);
  owner.resize(std::min(owner.find('\n'), owner.size()));
  fail("'", run_, "' is being written by another job: ", owner.empty() ? "one that has just begun" : owner,
       "; this one is ", job_, ". Wait for it, end it, or set another name");
}

void RunLock::write_owner() const {
  std::string owner = job_ + "\n";
  bool written = ftruncate(file_, 0) == 0 && pwrite(file_, owner.data(), owner.size(), 0) == ssize_t(owner.size());
  if (!written) cannot("write", path_);
}

}  // namespace shardgrad::train
