#pragma once
// On a terminal, what is waited for before there is a run that could say it.

#include <optional>
#include <ostream>
#include <string>

#include <shardgrad/train/terminal.h>
#include <shardgrad/train/ticker.h>

namespace shardgrad::train {

/// Where something takes longer than kSilence, a line that says what, and for how long: "reading the data  3 s". It
/// goes with this. Where there is no terminal, nothing.
class WaitingLine {
 public:
  WaitingLine(std::string doing, std::ostream& out, Terminal terminal);
  ~WaitingLine();
  WaitingLine(const WaitingLine&) = delete;

 private:
  void tick();
  std::string doing_;
  std::ostream& out_;
  Terminal terminal_;
  double since_;
  bool shown_ = false;
  std::optional<Ticker> ticker_;
};

}  // namespace shardgrad::train
