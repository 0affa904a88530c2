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
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <shardgrad/core/error.h>
#include <shardgrad/core/thread.h>
#include <shardgrad/dist/os/host_name.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::train {
namespace {

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

using Touched = std::optional<std::chrono::nanoseconds>;  // when, by the clock of whoever keeps the files

// Opened anew, for clients of a file server remember what a name told them; nothing when it has gone.
Touched touched(const std::string& path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status;
  bool known = file >= 0 && fstat(file, &status) == 0;
  if (file >= 0) close(file);
  if (!known) return {};
  return std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
}

Touched now_beside(const std::string& path) {
  std::string probe = concat(path, "-", getpid());
  write_file(probe, "");
  Touched now = touched(probe);
  unlink(probe.c_str());
  return now;
}

}  // namespace

// Touches the file until it is destroyed.
struct RunLock::Heart {
  Heart(int file, std::chrono::milliseconds beat) : file(file), pause(beat), thread([this] { beat_on(); }) {}
  ~Heart() {
    {
      std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_one();
    thread.join();
  }
  void beat_on() {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, pause, [this] { return ends; })) futimens(file, nullptr);
  }

  int file;
  std::chrono::milliseconds pause;
  std::mutex mutex;
  std::condition_variable changed;
  bool ends = false;
  Thread thread;
};

RunLock::RunLock(const std::string& run, Times times)
    : run_(run), path_(run + "/lock"), job_(this_job()), times_(times) {
  acquire();
}

void RunLock::acquire() {
  while (!take())
    if (file_ >= 0) close(std::exchange(file_, -1));
  try {
    write_owner();
  } catch (...) {  // the disk is full: nobody is to find it taken
    unlink(path_.c_str());
    close(std::exchange(file_, -1));
    throw;
  }
  heart_ = std::make_unique<Heart>(file_, times_.beat);
}

// Where a lock is seen by one machine only, the job that came last has written its name.
bool RunLock::is_mine() const { return is_named(file_, path_) && read_file(path_, kNote) == job_ + "\n"; }

RunLock::~RunLock() {
  heart_.reset();
  try {
    if (is_mine()) unlink(path_.c_str());
  } catch (const Error&) {  // it cannot be read: it stays, and is free, for nobody holds it
  }
  close(file_);
}

void RunLock::check() {
  if (is_mine()) return;
  if (access(path_.c_str(), F_OK) != 0 && errno == ENOENT) {
    heart_.reset();
    close(std::exchange(file_, -1));
    return acquire();
  }
  fail("this job has lost '", path_, "' to another one (", read_file(path_, kNote).substr(0, 200),
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
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) {
    bool here = owner().find(concat(" on ", dist::host_name(), " since ")) != std::string::npos;
    if (!is_new && !owner().empty() && !here) wait_for_silence();
    return is_named(file_, path_);
  }
  int error = errno;
  if (error == EWOULDBLOCK) refuse();
  if (!knows_no_flock(error)) {
    close(std::exchange(file_, -1));
    errno = error;
    cannot("lock", path_);
  }
  if (is_new) return true;
  wait_for_silence();
  unlink(path_.c_str());
  return false;
}

// Who wrote the file that is open, which may have lost its name meanwhile.
std::string RunLock::owner() const {
  std::string owner(400, ' ');
  owner.resize(size_t(std::max<ssize_t>(0, pread(file_, owner.data(), owner.size(), 0))));
  owner.resize(std::min(owner.find('\n'), owner.size()));
  return owner;
}

// Of a job that may have been killed, or may live where its lock is not seen.
void RunLock::wait_for_silence() {
  Touched first = touched(path_), now = now_beside(path_);
  if (!first || !now) return;
  auto left = times_.forgotten - (*now - *first);
  if (left.count() <= 0) return;
  std::cerr << concat("shardgrad: '", path_, "' is of ", owner(),
                      ", of which is not known whether it still runs; waiting ",
                      std::chrono::ceil<std::chrono::seconds>(left).count(), " s for a sign of it")
            << std::endl;
  for (auto end = std::chrono::steady_clock::now() + left; std::chrono::steady_clock::now() < end;) {
    std::this_thread::sleep_for(times_.beat / 5);
    Touched last = touched(path_);
    if (!last) return;
    if (*last != *first) refuse();
  }
}

void RunLock::refuse() {
  std::string other = owner();
  close(std::exchange(file_, -1));
  fail("'", run_, "' is being written by another job: ", other.empty() ? "one that has just begun" : other,
       "; this one is ", job_, ". Wait for it, end it, or set another name");
}

void RunLock::write_owner() const {
  std::string owner = job_ + "\n";
  bool written = ftruncate(file_, 0) == 0 && pwrite(file_, owner.data(), owner.size(), 0) == ssize_t(owner.size());
  if (!written) cannot("write", path_);
}

}  // namespace shardgrad::train
