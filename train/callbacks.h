#pragma once
// The callbacks of a run, in their order: rank 0's report, early stop, and the user's.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/callback.h>
#include <shardgrad/train/config.h>

namespace shardgrad::train {

class Callbacks {
 public:
  Callbacks(const Config& config, dist::ProcessGroup& world);
  void add_first(std::unique_ptr<Callback> callback) { all_.insert(all_.begin(), std::move(callback)); }

  template <class Event> void tell(void (Callback::*what)(const Event&), const Event& event) const {
    for (const auto& callback : all_) (callback.get()->*what)(event);
  }
  /// A collective, where there are callbacks that may want it. Why the run is to end, if one of any rank says
  /// so: the lowest rank's reason.
  std::optional<std::string> reason_to_end() const;

 private:
  dist::ProcessGroup& world_;
  bool may_end_;
  std::vector<std::unique_ptr<Callback>> all_;
};

}  // namespace shardgrad::train
