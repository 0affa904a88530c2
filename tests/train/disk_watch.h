#pragma once
// Stands between this program and the C library (disk_watch.cpp defines write, pwrite, fsync, rename, unlinkat, …
// anew): counts the calls that change the files of a folder, lets one fail, or ends the process before one, and knows
// what a power cut at that moment would leave on the disk.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace shardgrad {

class DiskWatch {
 public:
  /// What is in `folder` now is on the disk. One at a time.
  explicit DiskWatch(std::string folder);
  ~DiskWatch();
  DiskWatch(const DiskWatch&) = delete;

  /// Ends the process before the `number`-th call (from 1). Then `lost` is the folder after a power cut that kept only
  /// what was synced; `torn` the one after a cut that kept all names, but of contents only what was synced.
  void end_before(int number, const std::string& lost, const std::string& torn);
  static constexpr int kEnded = 42;  ///< its exit status

  /// Calls of this name ("write", "pwrite", "close") fail with this error.
  void let_fail(const std::string& call, int error) { failing_[call] = error; }
  /// … but for the first `count` of them from now on.
  void fail_after(const std::string& call, int count, int error) { let_fail(call, error), spared_[call] = count; }
  /// Calls of write and pwrite write at most so many bytes.
  void write_at_most(size_t bytes) { most_ = bytes; }
  /// … on the calling thread.
  void let_fail_here(const std::string& call, int error) { let_fail(call, error), only_ = std::this_thread::get_id(); }
  /// The folder is told to be on this file system (NFS_SUPER_MAGIC, …).
  void pretend_file_system(long magic) { magic_ = magic; }

  const std::vector<std::string>& calls() const { return calls_; }  ///< by name, in their order
  size_t written() const { return written_; }                       ///< bytes by pwrite
  size_t synced_writes() const { return synced_writes_; }           ///< pwrites that waited for the disk (O_DSYNC)

  // For disk_watch.cpp.
  static DiskWatch* now();
  std::recursive_mutex mutex;
  bool has(int folder, const char* path) const;
  int before(const char* call);  // the error it fails with, or 0
  int error_of(const char* call) const;
  void wrote(int file, ssize_t bytes);
  void synced(int file);
  long magic() const { return magic_; }
  size_t most() const { return most_; }

 private:
  // What the disk has: of a file its bytes, of a folder its names.
  struct Stored {
    bool folder = false;
    std::map<std::string, ino_t> names;
    std::string bytes;
  };
  void store(const std::string& path);
  void store_all(const std::string& path);
  void leave_stored(const std::string& to, ino_t folder) const;
  void leave_names(const std::string& to, const std::string& from) const;
  ino_t keep(const std::string& path);

  std::string folder_;
  std::map<ino_t, Stored> stored_;
  std::map<ino_t, int> kept_;  // open files, so that no number comes again
  std::map<std::string, int> failing_, spared_;
  std::optional<std::thread::id> only_;
  std::vector<std::string> calls_;
  size_t written_ = 0, synced_writes_ = 0;
  int end_ = 0;
  std::string lost_, torn_;
  long magic_ = 0;
  size_t most_ = SIZE_MAX;
};

}  // namespace shardgrad
