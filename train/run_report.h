#pragma once
// What a run leaves behind and tells: the folder runs/NAME with config.json, metrics.jsonl, ledger.json and what else
// the trainer gives it, a progress line per interval, a final table, and the closing `done:` line. Made by rank 0 only.

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <shardgrad/core/ledger.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/callback.h>
#include <shardgrad/train/config.h>

namespace shardgrad::train {

/// One JSON object on one line, each score as "test_NAME"; a number that is not finite becomes null.
std::string to_json_line(const Metrics& metrics);

/// 1536 → "1.5 KiB"; 90 → "1m30s"; 0.125, 2 → "0.13".
std::string format_bytes(int64_t bytes);
std::string format_seconds(double seconds);
std::string format_fixed(double value, int digits);

class RunReport : public Callback {
 public:
  /// Makes the folder `runs`/NAME (NAME-2, NAME-3, … when taken; with config.resume NAME itself, new or not; see
  /// resume) with config.json, and prints the configuration. Throws Error(input) when the folder cannot be made or
  /// written.
  RunReport(const Config& config, std::ostream& out, bool terminal);

  const std::string& folder() const { return folder_; }
  /// For a run with config.resume, once it is known to be this one: metrics.jsonl keeps its lines up to `step`.
  void resume(const Config& config, int64_t step, int64_t total_steps);
  /// Adds a line to metrics.jsonl and prints one, which the next one overwrites on a terminal unless it is to stay.
  void on_metrics(const Metrics& metrics) override;
  /// `done: test_accuracy=0.xxxx steps=N seconds=S run=PATH`, with the task's first score; or, for a run that was saved
  /// before its last step because it was asked to end, how to go on.
  void on_end(const Result& result) override;
  /// Prints what a step is predicted to need.
  void plan(const fsdp::Plan& predicted);
  /// Writes ledger.json: current and peak bytes by category and unit.
  void write_ledger(const Ledger& ledger);
  /// Makes or replaces a file of the run's folder.
  void write(const std::string& name, const std::string& text);
  /// (name, value), one line each.
  using Rows = std::vector<std::pair<std::string, std::string>>;
  void table(const Rows& rows);
  /// One line that stays.
  void say(const std::string& line);

 private:
  std::string folder_;
  std::ostream& out_;
  bool terminal_;
  std::ofstream metrics_;
};

}  // namespace shardgrad::train
