#pragma once
// Memory that the processes of one node share. It is a memfd: a file that has no name and lives in memory, so nothing
// is left behind however its processes end, and the size of /dev/shm does not matter. A process that did not inherit
// the descriptor opens it through /proc/PID/fd of the one that made it.

#include <cstddef>
#include <memory>
#include <string>

#include <shardgrad/dist/bootstrap/bootstrap.h>

namespace shardgrad::dist {

class SharedMemory {
 public:
  /// New memory, all zero. Pages are made when backed or touched. Throws Error(missing) with the system's reason.
  static std::shared_ptr<SharedMemory> create(const char* name, size_t bytes);
  /// Maps what another process made: a path like /proc/PID/fd/N.
  static std::shared_ptr<SharedMemory> open(const std::string& path, size_t bytes);
  /// Maps an inherited descriptor, and owns it.
  static std::shared_ptr<SharedMemory> adopt(int descriptor, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }
  std::string path() const;
  /// Makes the pages of a range, so that touching them cannot fail later. False when memory is short.
  bool back(size_t offset, size_t bytes) const;

 private:
  SharedMemory(int descriptor, size_t bytes);
  int descriptor_;
  std::byte* data_;
  size_t bytes_;
};

/// One memory on each machine, shared by the ranks there. Called by all ranks of the bootstrap. Null everywhere, with
/// the reason, when any of them cannot have it. The bootstrap holds it until the job is over.
std::shared_ptr<SharedMemory> share_memory(Bootstrap& bootstrap, const char* name, size_t bytes, std::string& reason);

}  // namespace shardgrad::dist
