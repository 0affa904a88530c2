#pragma once
// What a run leaves behind and tells: the folder runs/NAME with config.json, metrics.jsonl, ledger.json and what else
// the trainer gives it, a progress line per interval (on a terminal another one about every second, of what is known
// without asking the device or other ranks), a final table, and the closing `done:` line. Made by rank 0 only.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <shardgrad/core/ledger.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/callback.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/tensorboard.h>
#include <shardgrad/train/terminal.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {

class RunReport : public Callback {
 public:
  /// Makes the folder `runs`/NAME (NAME-2, NAME-3, … when taken; with config.resume NAME itself, new or not; see
  /// resume) with config.json. Throws Error(input) when the folder cannot be made or written.
  RunReport(const Config& config, std::ostream& out, Terminal terminal = {});
  /// Ends a line that would be written over. Of a run that was refused, removes the folder if this has made it.
  ~RunReport() override;

  const std::string& folder() const { return folder_; }
  /// The run is not refused any more.
  void begun() { begun_ = true; }
  /// For a run with config.resume, once it is known to be this one: what was said of steps after `step` is forgotten,
  /// and without `with_last` what was said of it. Where it went on, config.json keeps the weights that it began with.
  void resume(Config config, int64_t step, int64_t total_steps, bool with_last = true);
  void on_step(const Stepped& step) override;
  /// For a terminal, from any thread: where nothing was printed for a while, what goes on, and for how long.
  void tick();
  /// `done` of `all` batches of an evaluation are done.
  void testing(int64_t done, int64_t all);
  /// Adds a line to metrics.jsonl, and with `tensorboard` its scalars to a file of events. What the disk does not take
  /// waits; that is told once of each file.
  void on_logged(const Metrics& metrics) override;
  /// What waits is to be there before the run goes on from what was saved.
  void on_save(const Saved& saved) override;
  /// Prints a line, which the next one overwrites on a terminal unless it is to stay.
  void on_metrics(const Metrics& metrics) override;
  /// `done: test_accuracy=0.xxxx steps=N seconds=S run=PATH`, with the task's first score; or, for a run that was saved
  /// before its last step because it was asked to end, how to go on.
  void on_end(const Result& result) override;
  /// Prints what of the configuration is not the default.
  void settings(const Config& config);
  /// Prints what a step is predicted to need.
  void plan(const fsdp::Plan& predicted);
  /// Writes ledger.json: current and peak bytes by category and unit.
  void write_ledger(const Ledger& ledger);
  /// Makes or replaces a file of the run's folder.
  void write(const std::string& name, const std::string& text);
  /// One that training can do without: a failure is told, and the end of the run tries again.
  void try_write(const std::string& name, const std::string& text);
  /// (name, value), one line each.
  using Rows = std::vector<std::pair<std::string, std::string>>;
  void table(const Rows& rows);
  /// One line that stays.
  void say(const std::string& line);

 private:
  // When, and where the run stood then.
  struct Mark {
    double seconds;
    int64_t step = -1, samples = 0;
  };
  void show(const std::vector<Field>& fields, bool stays);
  std::ostream& fresh_line();
  void forget();
  void write_config(Config config);
  void tell_once(const std::string& file, const std::string& line);
  std::vector<AppendedFile*> appended();
  void end_files();
  bool is_new_ = false, begun_ = false;  // the folder; the run
  std::string folder_;
  std::ostream& out_;
  Terminal terminal_;
  bool passing_ = false;                    // the line that is shown is to be written over
  Mark shown_;                              // when it was
  int64_t last_step_ = -1, next_step_ = 0;  // that is done; that follows (see Doing)
  // What goes on, and since when; for tick().
  struct Doing {
    double since;
    int64_t step = 0;  // 0: what comes before the first one; -1: what comes after the last one
    std::string part{};
  };
  Doing doing_;
  double printed_;  // when anything was
  bool ended_ = false;
  std::recursive_mutex mutex_;  // of all that is printed
  std::optional<AppendedFile> metrics_;
  std::optional<TensorBoard> board_;
  std::set<std::string> told_;                    // files of which it was said that they cannot be written
  std::map<std::string, std::string> unwritten_;  // those that were to be replaced, with their texts
};

}  // namespace shardgrad::train
