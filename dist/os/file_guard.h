#pragma once
// Files that must not outlive the process that needs them, however it ends.

#include <sys/types.h>

#include <string>
#include <vector>

namespace shardgrad::dist {

/// Removes these files should the process end, or this object go, before keep() is called. A child process waits for
/// that and does it, in a process group of its own: what kills this process, or its group, does not kill the child.
class FileGuard {
 public:
  explicit FileGuard(const std::vector<std::string>& paths);
  ~FileGuard();
  FileGuard(const FileGuard&) = delete;
  /// From now on the files are somebody else's.
  void keep();

 private:
  int alive_ = -1;  // a socket's end, which the system closes with the process
  pid_t child_ = -1;
};

}  // namespace shardgrad::dist
