#include <shardgrad/train/read_file.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/seconds.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {
namespace {

class Opened {
 public:
  Opened(const char* verb, const std::string& path, int flags)
      : file_(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK)) {  // a pipe would wait for its writer
    bool of_a_shell = errno == ENOENT && path.starts_with("/dev/fd/");
    SG_CHECK(file_ >= 0 || !of_a_shell, "cannot ", verb, " '", path,
             "': a shell's <(…) is there for one process, and not for those that are launched; use a file");
    if (file_ < 0) cannot(verb, path);
    if (fstat(file_, &status_) == 0) return;
    close(file_);
    cannot(verb, path);
  }
  ~Opened() {
    if (file_ >= 0) close(file_);
  }
  Opened(const Opened&) = delete;
  int get() const { return file_; }
  int give() { return std::exchange(file_, -1); }
  bool is_pipe() const { return S_ISFIFO(status_.st_mode); }
  int64_t size() const { return status_.st_size; }
  void check_regular(const char* verb, const std::string& path, const std::string& remedy) const {
    SG_CHECK(S_ISREG(status_.st_mode), "cannot ", verb, " '", path, "': it is ",
             S_ISDIR(status_.st_mode) ? "a folder" : "no regular file", remedy);
  }

 private:
  int file_;
  struct stat status_;
};

class Reading {
 public:
  Reading(const std::string& path, const FileKind& kind, std::chrono::milliseconds patience)
      : path_(path), kind_(kind), patience_(patience), file_("read", path, O_RDONLY) {}

  std::string all() {
    file_.is_pipe() && kind_.may_be_pipe ? check_pipe() : check_file();
    std::string text;
    for (char part[1 << 16];;) {
      if (file_.is_pipe()) wait();
      ssize_t got = read(file_.get(), part, sizeof part);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) cannot("read", path_);
      if (got == 0) break;
      text.append(part, size_t(got));
      if (std::ssize(text) > kind_.most) refuse_size("more than " + format_bytes(kind_.most));
    }
    SG_CHECK(!file_.is_pipe() || !text.empty(), "cannot read '", path_,
             "': it is a pipe that gives nothing, and another process may have read it before; use a file");
    return text;
  }

 private:
  [[noreturn]] void refuse_size(const std::string& size) const {
    fail("cannot read '", path_, "': it has ", size, ", and ", kind_.name, " has at most ", format_bytes(kind_.most),
         "; name the right file");
  }
  void check_file() const {
    file_.check_regular("read", path_, concat("; name the file of ", kind_.name));
    if (file_.size() > kind_.most) refuse_size(format_bytes(file_.size()));  // of some files 0 is said
  }
  void check_pipe() const {
    int ranks = dist::processes_of_job();
    SG_CHECK(ranks == 1, "cannot read '", path_, "': it is a pipe, which one process can read, and each of the ", ranks,
             " ranks has to; use a file");
  }
  // Until it has something, or nobody writes any more.
  void wait() const {
    pollfd one{file_.get(), POLLIN, 0};
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(begun_ + patience_ - Clock::now());
    int ready = poll(&one, 1, int(std::max<int64_t>(0, left.count())));
    if (ready < 0 && errno != EINTR) cannot("read", path_);
    SG_CHECK(ready != 0, "cannot read '", path_,
             "': it is a pipe, and whoever writes it has not come to an end within ",
             format_seconds(double(patience_.count()) / 1000), "; use a file");
  }

  const std::string& path_;
  const FileKind& kind_;
  std::chrono::milliseconds patience_;
  Clock::time_point begun_ = Clock::now();
  Opened file_;
};

}  // namespace

std::string read_file(const std::string& path, const FileKind& kind, std::chrono::milliseconds patience) {
  return Reading(path, kind, patience).all();
}

int open_regular(const char* verb, const std::string& path, int flags, const char* remedy) {
  Opened file(verb, path, flags);
  file.check_regular(verb, path, remedy);
  return file.give();
}

}  // namespace shardgrad::train
