#pragma once
// Ranks that dist/launch/launch_local.h started as processes of this machine: they inherit a memory and are told
//   SHARDGRAD_RANK, SHARDGRAD_WORLD_SIZE   who this process is
//   SHARDGRAD_JOB_FD                       the descriptor of that memory, a colon, and the number of its file:
//                                          what else has that descriptor by now is not written over

#include <atomic>
#include <memory>
#include <string>

#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/bootstrap/shared_memory.h>

namespace shardgrad::dist {

/// What the launcher and its ranks share: who is here, the place where ranks meet, and the control channel.
class ForkedMemory {
 public:
  /// By the launcher. Throws Error(missing) with the system's reason.
  ForkedMemory(int ranks, size_t control_bytes);
  /// By a rank: maps the inherited descriptor.
  static ForkedMemory adopt(const std::string& name, int ranks);

  int descriptor() const { return memory_->descriptor(); }
  /// What SHARDGRAD_JOB_FD says.
  std::string name() const;
  /// Whether a rank has come, and waits for the others or works.
  std::atomic<bool>& here(int rank) const;
  std::shared_ptr<void> meeting_place() const { return {memory_, memory_->data() + meeting_at(ranks_)}; }
  std::shared_ptr<void> control() const { return {memory_, memory_->data() + control_at(ranks_)}; }
  size_t control_bytes() const { return memory_->bytes() - control_at(ranks_); }

 private:
  ForkedMemory(std::shared_ptr<SharedMemory> memory, int ranks) : memory_(std::move(memory)), ranks_(ranks) {}
  static size_t meeting_at(int ranks);
  static size_t control_at(int ranks);
  std::shared_ptr<SharedMemory> memory_;
  int ranks_;
};

/// The bootstrap of a process that launch_local started, or null.
std::unique_ptr<Bootstrap> forked_bootstrap_from_environment();

}  // namespace shardgrad::dist
