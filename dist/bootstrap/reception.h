#pragma once
// The host of a meeting to which a known number of guests come, once each: the ranks of a job, or its machines.

#include <string>
#include <vector>

#include <shardgrad/dist/bootstrap/host.h>

namespace shardgrad::dist {

class Reception final : public Host {
 public:
  /// Expects guests 1 to count - 1; the host itself is 0. Raises this process's limit on descriptors if it must. Throws
  /// Error(missing), with the remedy, where its hard limit has no room for them.
  Reception(std::vector<Socket> listeners, std::string token, int count, const std::string& machine);

  std::vector<int> missing() const;
  /// The machines, by number.
  const std::vector<std::string>& machines() const { return machines_; }
  /// The connections, by number; the first is empty.
  std::vector<Socket>& guests() { return guests_; }

 private:
  size_t expected() const override { return missing().size(); }
  std::string contradiction(const Guest& guest) const override;
  void welcome(const Guest& guest, Socket socket) override;

  std::vector<Socket> guests_;
  std::vector<std::string> machines_;
};

}  // namespace shardgrad::dist
