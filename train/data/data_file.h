#pragma once
// A file of samples that may be larger than memory. A small one is held in memory, which spares a system call for each
// sample. A larger one is read and not mapped: where a disk fails, or somebody makes the file shorter, a mapping would
// end the process by a signal, and a read says what happened.

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <span>
#include <string>

#include <shardgrad/core/tensor.h>

namespace shardgrad::data {

class DataFile {
 public:
  /// Throws Error(input) with the path and the reason for what cannot be read, and for what is no regular file.
  explicit DataFile(std::string path);
  ~DataFile();
  DataFile(const DataFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  /// Bytes [begin, begin + count), from any thread. Throws Error(input) when they are not all there.
  void read(void* to, int64_t begin, int64_t count) const;
  /// Holds a file of up to kHeld bytes in memory, which is of category data: it may change from then on.
  void hold_if_small();
  static constexpr int64_t kHeld = int64_t(256) << 20;
  /// Throws Error(input) when a file that is not held is not what it was when it was opened.
  void check_unchanged() const;

 private:
  std::string path_;
  int file_ = -1;
  int64_t size_ = 0;
  timespec changed_{};
  Tensor held_;
};

/// A file as one text. Throws as DataFile.
std::string read_whole(const std::string& path);

/// Calls `call` with bytes [begin, end) of a file, in order, in blocks of at most kBlock.
inline constexpr int64_t kBlock = int64_t(1) << 20;
void for_each_block(const DataFile& file, int64_t begin, int64_t end,
                    const std::function<void(std::span<const std::byte>)>& call);

}  // namespace shardgrad::data
