#include <shardgrad/core/ledger_history.h>

namespace shardgrad {

LedgerHistory::LedgerHistory(Ledger& ledger, const Recorder& recorder) : ledger_(ledger) {
  for (Category::Kind category : ledger.categories())
    if (int64_t bytes = ledger.current(category)) before_[category] = bytes;
  ledger.on_change([this, &recorder](Tag tag, int64_t bytes) {
    std::lock_guard lock(mutex_);
    changes_.push_back({recorder.now(), tag, bytes});
  });
}

LedgerHistory::~LedgerHistory() { ledger_.on_change(nullptr); }

std::vector<LedgerChange> LedgerHistory::changes() const {
  std::lock_guard lock(mutex_);
  return changes_;
}

}  // namespace shardgrad
