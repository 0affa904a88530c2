#include <shardgrad/train/data/data_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::data {

DataFile::DataFile(std::string path) : path_(std::move(path)) {
  file_ = train::open_regular("read", path_, O_RDONLY, "; name the file with the data");
  struct stat status;
  if (fstat(file_, &status) != 0) {
    close(file_);
    train::cannot("read", path_);
  }
  size_ = status.st_size;
  changed_ = status.st_mtim;
}

DataFile::~DataFile() { close(file_); }

void DataFile::read(void* to, int64_t begin, int64_t count) const {
  if (held_) {
    SG_ASSERT(begin >= 0 && count >= 0 && begin + count <= size_, "bytes ", begin, " + ", count, " of '", path_, "'");
    std::memcpy(to, static_cast<const std::byte*>(held_.in().data) + begin, size_t(count));
    return;
  }
  for (int64_t done = 0; done < count;) {
    ssize_t got = pread(file_, static_cast<char*>(to) + done, size_t(count - done), off_t(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) train::cannot("read", path_);
    SG_CHECK(got > 0, "'", path_, "' became shorter while it was read: it had ", size_, " bytes");
    done += got;
  }
}

void DataFile::hold_if_small() {
  if (size_ > kHeld) return;
  TagScope tag(Category::data);
  Tensor bytes = empty({size_}, {DType::u8, kCpu}, "DataFile");
  read(bytes.out().data, 0, size_);
  held_ = bytes;
}

void DataFile::check_unchanged() const {
  if (held_) return;
  struct stat now;
  if (fstat(file_, &now) != 0) train::cannot("read", path_);
  bool same = now.st_size == size_ && now.st_mtim.tv_sec == changed_.tv_sec && now.st_mtim.tv_nsec == changed_.tv_nsec;
  SG_CHECK(same, "'", path_,
           "' has been changed since it was opened; samples of two versions must not be mixed: start ",
           "again, and leave the file alone while it is used");
}

std::string read_whole(const std::string& path) {
  DataFile file(path);
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), 0, file.size());
  return text;
}

void for_each_block(const DataFile& file, int64_t begin, int64_t end,
                    const std::function<void(std::span<const std::byte>)>& call) {
  std::vector<std::byte> block(size_t(std::clamp<int64_t>(end - begin, 0, kBlock)));
  while (begin < end) {
    int64_t count = std::min(end - begin, kBlock);
    file.read(block.data(), begin, count);
    call(std::span(block).first(size_t(count)));
    begin += count;
  }
}

}  // namespace shardgrad::data
