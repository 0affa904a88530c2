#pragma once
// A file to which a run adds records, such as lines of metrics, and which it can do without for a while. What the disk
// has no room for waits in memory and is added later: every record once, in order, and never a part of one.

#include <cstdint>
#include <deque>
#include <string>

namespace shardgrad::train {

class AppendedFile {
 public:
  /// Opens the file, or makes it; what is there stays. Throws Error(input) when that is not possible.
  explicit AppendedFile(std::string path);
  /// Tries once more to add what waits.
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;

  const std::string& path() const { return path_; }
  /// Adds a record behind all others, when the disk takes it. Beyond kMostWaiting bytes that wait it is lost.
  void add(std::string record);
  static constexpr size_t kMostWaiting = size_t(64) << 20;
  /// Adds what waits.
  void retry();
  /// Why not everything is in the file: "cannot write 'a/metrics.jsonl': No space left on device". Empty if all is.
  const std::string& trouble() const { return trouble_; }
  /// Records that are not in the file.
  int64_t missing() const { return std::ssize(waiting_) + lost_; }

 private:
  void append(const std::string& record);
  void cut();
  std::string path_, trouble_;
  int file_;
  int64_t end_ = 0;  // of the last whole record
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  int64_t lost_ = 0;
};

}  // namespace shardgrad::train
