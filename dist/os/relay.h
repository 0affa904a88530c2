#pragma once
// For a child that does not say whether what it writes reaches anybody: mpirun ends with 0 when standard output is
// full.

#include <atomic>

#include <shardgrad/core/thread.h>

namespace shardgrad::dist {

/// What a program says on standard error when what it said on standard output was lost.
inline constexpr const char* kOutputLost =
    "shardgrad: standard output could not be written (it is closed, or its disk is full): what was to be said there is "
    "lost";

/// A pipe, and a thread that passes on what comes out of it to the standard output of this process.
class Relay {
 public:
  Relay();
  ~Relay() { finish(); }
  Relay(const Relay&) = delete;
  /// Where a child is to write.
  int input() const { return ends_[1]; }
  /// Once the children have ended: passes on what is left. Whether all of it could be written.
  bool finish();

 private:
  void pass_on();
  void write_out(const char* text, size_t count);
  int ends_[2];
  std::atomic<bool> ended_{false};
  bool lost_ = false;
  Thread thread_;
};

}  // namespace shardgrad::dist
