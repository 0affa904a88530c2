#pragma once
// One job writes a run's folder at a time. `lock` in it says who: process, machine and since when. The system holds the
// lock (flock) and lets it go when the process ends, however it does. Where a file system knows no flock, the file
// itself is the lock: its owner touches it every few seconds, and one that nobody has touched for a minute is taken
// over.

#include <memory>
#include <string>

namespace shardgrad::train {

class RunLock {
 public:
  /// Throws Error(input) naming both jobs when another one has it, which may be one of this process.
  explicit RunLock(const std::string& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;

  /// Throws Error(input) when another job has it now, as can be where locks of other machines are not seen. One that
  /// somebody has removed is taken again.
  void check();

 private:
  struct Heart;
  void acquire();
  bool take();
  bool is_mine() const;
  [[noreturn]] void refuse() const;
  void write_owner() const;
  std::string run_, path_, job_;
  int file_ = -1;
  std::unique_ptr<Heart> heart_;  // of a file that is the lock
};

}  // namespace shardgrad::train
