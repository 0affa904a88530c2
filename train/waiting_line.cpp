#include <shardgrad/train/waiting_line.h>

#include <utility>

#include <shardgrad/train/text.h>

namespace shardgrad::train {

WaitingLine::WaitingLine(std::string doing, std::ostream& out, Terminal terminal)
    : doing_(std::move(doing)), out_(out), terminal_(std::move(terminal)), since_(terminal_.seconds()) {
  if (terminal_.columns) ticker_.emplace(kTick, [this] { tick(); });
}

WaitingLine::~WaitingLine() {
  ticker_.reset();
  if (shown_) out_ << kLineBegin << std::flush;
}

void WaitingLine::tick() {
  double passed = terminal_.seconds() - since_;
  if (passed < kSilence) return;
  shown_ = true;
  out_ << kLineBegin << fitted({{doing_, 2}, {format_fixed(passed, 0) + " s", 1}}, terminal_.columns()) << std::flush;
}

}  // namespace shardgrad::train
