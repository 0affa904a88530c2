#include <shardgrad/train/appended_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train {

AppendedFile::AppendedFile(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)) {
  if (file_ < 0) cannot("write", path_);
  struct stat status;
  if (fstat(file_, &status) == 0) end_ = status.st_size;
}

AppendedFile::~AppendedFile() {
  retry();
  close(file_);
}

void AppendedFile::add(std::string record) {
  if (waiting_bytes_ + record.size() > kMostWaiting) retry();
  if (waiting_bytes_ + record.size() > kMostWaiting) {
    ++lost_;
    return;
  }
  waiting_bytes_ += record.size();
  waiting_.push_back(std::move(record));
  retry();
}

void AppendedFile::retry() {
  try {
    for (; !waiting_.empty(); waiting_.pop_front()) {
      append(waiting_.front());
      waiting_bytes_ -= waiting_.front().size();
    }
    if (lost_ == 0) trouble_.clear();
  } catch (const Error& error) {
    trouble_ = error.what();
  }
}

// Where that fails, the next record is written over the part.
void AppendedFile::cut() { [[maybe_unused]] int failed = ftruncate(file_, off_t(end_)); }

void AppendedFile::append(const std::string& record) {
  for (size_t done = 0; done < record.size();) {
    ssize_t put = pwrite(file_, record.data() + done, record.size() - done, off_t(end_) + off_t(done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      int reason = put < 0 ? errno : ENOSPC;
      cut();
      errno = reason;
      cannot("write", path_);
    }
    done += size_t(put);
  }
  end_ += std::ssize(record);
}

}  // namespace shardgrad::train
