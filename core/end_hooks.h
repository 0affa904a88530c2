#pragma once
// Who is to be told that something ends, unless it has gone before.

#include <functional>
#include <memory>
#include <vector>

namespace shardgrad {

class EndHooks {
 public:
  /// `end` is called by run(), unless the returned handle went first. It must not throw.
  [[nodiscard]] std::shared_ptr<void> add(std::function<void()> end) {
    std::erase_if(hooks_, [](const auto& hook) { return hook.expired(); });
    auto kept = std::make_shared<std::function<void()>>(std::move(end));
    hooks_.push_back(kept);
    return kept;
  }
  /// The one that came last first.
  void run() {
    while (!hooks_.empty()) {
      auto end = hooks_.back().lock();
      hooks_.pop_back();
      if (end) (*end)();
    }
  }

 private:
  std::vector<std::weak_ptr<std::function<void()>>> hooks_;
};

}  // namespace shardgrad
