#include <shardgrad/train/files.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <shardgrad/core/error.h>

namespace shardgrad::train {
namespace {

class OpenFile {
 public:
  OpenFile(const char* verb, const std::string& path, int flags) : file_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (file_ < 0) cannot(verb, path);
  }
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  int get() const { return file_; }
  int close() { return ::close(std::exchange(file_, -1)); }

 private:
  int file_;
};

// `call` as often as signals interrupt it.
template <class Call> ssize_t uninterrupted(const Call& call) {
  for (;;)
    if (ssize_t result = call(); result >= 0 || errno != EINTR) return result;
}

// A run's configuration may name files as they were called where it was trained.
std::string looked_for(const std::string& path) {
  std::error_code ignored;
  return path.starts_with('/') ? "" : concat(" in '", std::filesystem::current_path(ignored).string(), "'");
}

}  // namespace

void cannot(const char* verb, const std::string& path) {
  int error = errno;
  fail("cannot ", verb, " '", path, "': ", std::strerror(error), error == ENOENT ? looked_for(path) : "");
}

void write_file(const std::string& path, const std::string& text) {
  OpenFile file("write", path, O_WRONLY | O_CREAT | O_TRUNC);
  for (size_t done = 0; done < text.size();) {
    ssize_t put = uninterrupted([&] { return write(file.get(), text.data() + done, text.size() - done); });
    if (put < 0) cannot("write", path);
    done += size_t(put);
  }
  if (file.close() != 0) cannot("write", path);  // a file server may say only now that its disk is full
}

void replace_file(const std::string& path, const std::string& text) {
  std::string unfinished = path + ".tmp";
  try {
    write_file(unfinished, text);
    rename_when_safe(unfinished, path);
  } catch (const Error&) {
    unlink(unfinished.c_str());  // a full disk has room for something else
    throw;
  }
}

void rename_when_safe(const std::string& from, const std::string& to) {
  sync_path(from);
  if (rename(from.c_str(), to.c_str()) != 0) cannot("write", to);
}

void sync_path(const std::string& path) {
  OpenFile file("open", path, O_RDONLY);
  if (fsync(file.get()) != 0) cannot("write", path);
}

// Where the file system cannot promise space, glibc's posix_fallocate would write a byte per block instead.
static void take(const OpenFile& file, const std::string& path, int64_t begin, int64_t count) {
  ssize_t result = uninterrupted([&] { return fallocate(file.get(), 0, off_t(begin), off_t(count)); });
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
    result = ftruncate(file.get(), off_t(begin) + off_t(count));
  if (result != 0) cannot("write", path);
}

void take_space(const std::string& path, int64_t begin, int64_t count) {
  take(OpenFile("open", path, O_RDWR), path, begin, count);
}

void check_space(const std::string& path, int64_t count) {
  OpenFile file("write", path, O_RDWR | O_CREAT | O_TRUNC);
  unlink(path.c_str());  // before it takes any: whatever ends this process gives the space back
  if (count > 0) take(file, path, 0, count);
}

std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 200;  // bytes
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (uint8_t(text[end]) & 0xC0) == 0x80) --end;  // not in the middle of a character
  return concat(text.substr(0, end), "… (", text.size(), " bytes)");
}

}  // namespace shardgrad::train
