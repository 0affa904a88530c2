#pragma once
// One job writes a run's folder at a time. `lock` in it says who: process, machine and since when. The system holds the
// lock (flock) and lets it go when the process ends, however it does. Where a file system knows no flock, or shows it
// to one machine only, the file itself is the lock: its owner touches it every few seconds. A job that finds one which
// it cannot judge waits until that is touched, and is refused, or nobody has touched it for a minute, and takes it
// over.

#include <chrono>
#include <memory>
#include <string>

namespace shardgrad::train {

class RunLock {
 public:
  struct Times {
    std::chrono::milliseconds beat{10'000}, forgotten{60'000};
  };
  /// Throws Error(input) naming both jobs when another one has it, which may be one of this process.
  explicit RunLock(const std::string& run) : RunLock(run, Times()) {}
  RunLock(const std::string& run, Times times);
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
  std::string owner() const;
  void wait_for_silence();
  [[noreturn]] void refuse();
  void write_owner() const;
  std::string run_, path_, job_;
  Times times_;
  int file_ = -1;
  std::unique_ptr<Heart> heart_;
};

}  // namespace shardgrad::train
