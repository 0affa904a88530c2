#pragma once
// The time in which this process stood still: Ctrl-Z and fg, a debugger, a suspended machine. Its monitor beats; where
// two beats are further apart than `gap`, the process stood still from one beat after the first at the latest:
//
//     beats at 0.0, 0.1, 0.2, 9.2 s, every 0.1 s: 9.0 - 0.1 = 8.9 s
//
// Who asks after the process goes on and before the monitor has noticed gets the same: a clock that leaves these
// seconds out never goes back.

#include <algorithm>
#include <chrono>
#include <mutex>

namespace shardgrad::dist {

class Suspension {
 public:
  using Clock = std::chrono::steady_clock;

  /// The monitor is awake at `now`, and comes back after `beat`. True when the process had stood still.
  bool note_beat(Clock::time_point now, Clock::duration beat, Clock::duration gap) {
    std::lock_guard lock(mutex_);
    Clock::duration still = since_last_beat(now);
    total_ += still;
    last_ = now;
    beat_ = beat;
    gap_ = gap;
    return still > Clock::duration::zero();
  }
  double seconds(Clock::time_point now = Clock::now()) const {
    std::lock_guard lock(mutex_);
    return std::chrono::duration<double>(total_ + since_last_beat(now)).count();
  }

 private:
  Clock::duration since_last_beat(Clock::time_point now) const {
    bool began = last_ != Clock::time_point{};
    return began && now - last_ > gap_ ? now - last_ - beat_ : Clock::duration::zero();
  }
  mutable std::mutex mutex_;
  Clock::time_point last_;
  Clock::duration beat_{}, gap_{}, total_{};
};

}  // namespace shardgrad::dist
