#pragma once
// Bytes over time: every change of a ledger with its moment, of which pictures of memory are drawn.
//
//     recorder.set_tracing(true);
//     LedgerHistory history(context.ledger(), context.recorder());
//     …                                                       // a step
//     history.before();                                       // {parameter_shard: 400}
//     history.changes();                                      // 0.001 s +400 gathered_parameter, 0.004 s -400, …
//
// A ledger that nobody observes pays nothing for it. While a history lives a change costs a lock, a reading of the
// clock and 32 bytes, and none is dropped, as in a recorder that is tracing.

#include <map>
#include <mutex>
#include <vector>

#include <shardgrad/core/ledger.h>
#include <shardgrad/core/recorder.h>

namespace shardgrad {

/// Some bytes have come, or, negative, gone. `at`: seconds by the recorder's clock.
struct LedgerChange {
  double at = 0;
  Tag tag{};
  int64_t bytes = 0;
};

/// Made and ended while no other thread of its rank makes or drops tensors. It is the ledger's observer: throws
/// Error(input) where there is another.
class LedgerHistory {
 public:
  LedgerHistory(Ledger& ledger, const Recorder& recorder);
  ~LedgerHistory();
  LedgerHistory(const LedgerHistory&) = delete;
  LedgerHistory& operator=(const LedgerHistory&) = delete;

  /// What was in memory when the history began.
  const std::map<Category::Kind, int64_t>& before() const { return before_; }
  /// In the order in which they were noted.
  std::vector<LedgerChange> changes() const;

 private:
  Ledger& ledger_;
  std::map<Category::Kind, int64_t> before_;
  mutable std::mutex mutex_;
  std::vector<LedgerChange> changes_;
};

}  // namespace shardgrad
