#pragma once
// Who owns which byte. Every tensor, workspace and group buffer is entered with a category and a unit, so memory is
// tested and reported by name. What libraries allocate behind our back (MPI, OpenMP, oneDNN) is not counted.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad {

enum class Category : uint8_t {
  parameter_shard,
  gathered_parameter,
  gradient_shard,
  full_gradient,
  optimizer_state,
  activation,
  activation_gradient,
  communication,
  workspace,
  pinned_host,
  data,
  other,
};
inline constexpr int kCategoryCount = 12;
const char* name_of(Category category);

/// The owner of some bytes. Unit 0 means "no unit".
struct Tag {
  Category category = Category::other;
  uint16_t unit = 0;
  bool operator==(const Tag&) const = default;
};

/// Current and peak bytes in total, per category, and per (category, unit). Safe to call from several threads.
class Ledger {
 public:
  void add(Tag tag, size_t bytes);
  void sub(Tag tag, size_t bytes);

  int64_t current() const { return total_.current.load(std::memory_order_relaxed); }
  int64_t peak() const { return total_.peak.load(std::memory_order_relaxed); }
  int64_t current(Category c) const { return categories_[size_t(c)].current.load(std::memory_order_relaxed); }
  int64_t peak(Category c) const { return categories_[size_t(c)].peak.load(std::memory_order_relaxed); }
  int64_t current(Tag tag) const;
  int64_t peak(Tag tag) const;
  /// Starts new peaks at the current values.
  void reset_peaks();

  /// The `count` largest owners now, for messages: "activation 4096 bytes, gathered_parameter of 'layer0' 1024 bytes".
  std::string largest_owners(int count) const;

  /// The id of a unit name, registering it when new.
  uint16_t unit_id(std::string_view name);
  const std::string& unit_name(uint16_t id) const;
  int unit_count() const;
  /// Called after every change (bytes negative for a release); for tests and traces. Null removes it.
  void on_change(std::function<void(Tag, int64_t bytes)> observer);

 private:
  struct Count {
    std::atomic<int64_t> current{0}, peak{0};
    void add(int64_t bytes);
  };
  void change(Tag tag, int64_t bytes);
  Count total_;
  std::array<Count, kCategoryCount> categories_;
  mutable std::mutex mutex_;
  std::map<std::pair<uint8_t, uint16_t>, std::pair<int64_t, int64_t>> units_;  // current, peak
  std::vector<std::string> names_{""};
  std::function<void(Tag, int64_t)> observer_;
  std::atomic<bool> observed_{false};
};

}  // namespace shardgrad
