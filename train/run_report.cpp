#include <shardgrad/train/run_report.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/metrics_line.h>
#include <shardgrad/train/text/tokenizer.h>

namespace shardgrad::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kPause = 1;  // seconds between lines on a terminal, if there is anything to say

std::string make_run_folder(const Config& config, bool& is_new) {
  std::error_code error, above;
  std::filesystem::create_directories(config.runs, above);
  for (int number = 1;; ++number) {
    std::string folder = config.runs + "/" + config.name + (number == 1 ? "" : concat("-", number));
    is_new = std::filesystem::create_directory(folder, error);
    if (is_new || (config.resume && !error)) return folder;
    SG_CHECK(error != std::errc::file_exists, "'", folder, "' is there and is no folder; set another name");
    SG_CHECK(!error, "cannot make the run's folder '", folder, "': ", (above ? above : error).message(),
             "; set runs to a folder you may write to");
  }
}

// Of a language task in tokens.
std::string speed_of(double samples_per_s, double tokens_per_s, int width = 0) {
  bool tokens = tokens_per_s > 0;
  std::string number = format_fixed(tokens ? tokens_per_s : samples_per_s, 0);
  return format("%*s %s", width, number.c_str(), tokens ? "tokens/s" : "samples/s");
}

}  // namespace

RunReport::RunReport(const Config& config, std::ostream& out, Terminal terminal)
    : folder_(make_run_folder(config, is_new_)),
      out_(out),
      terminal_(std::move(terminal)),
      shown_{terminal_.seconds()},
      doing_{shown_.seconds},
      printed_(shown_.seconds),
      metrics_(folder_ + "/metrics.jsonl") {
  if (!config.resume) write_config(config);
  if (!config.resume && config.tensorboard) board_.emplace(folder_, 0);
}

RunReport::~RunReport() {
  if (passing_) out_ << std::endl;
  if (is_new_ && !begun_) forget();
}

// Who trains by it makes another run, as this one was.
void RunReport::write_config(Config config) {
  config.resume = false;
  write("config.json", to_json(config));
}

void RunReport::forget() {
  metrics_.reset();
  board_.reset();
  std::error_code ignored;
  if (std::filesystem::exists(folder_ + "/lock", ignored)) return;  // a job that resumes was first: it is that one's
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    std::string name = entry.path().filename();
    bool is_ours = name == "config.json" || name == "metrics.jsonl" || name == text::kTokenizerFile ||
                   name == text::kTokenizerConfigFile || name.starts_with("events.out.tfevents.");
    if (is_ours) std::filesystem::remove(entry.path(), ignored);
  }
  std::filesystem::remove(folder_, ignored);  // unless somebody else has put something into it
}

// What a run began with, when its config.json says so.
static std::optional<std::string> begun_with(const std::string& folder) {
  Json config = Json::parse(std::ifstream(folder + "/config.json"), nullptr, false);
  if (!config.is_object() || !config.contains("init_from") || !config["init_from"].is_string()) return {};
  return config["init_from"];
}

void RunReport::resume(Config config, int64_t step, int64_t total_steps, bool with_last) {
  std::lock_guard lock(mutex_);
  if (step > 0) config.init_from = begun_with(folder_).value_or(config.init_from);
  write_config(config);
  std::string path = metrics_->path();
  metrics_.reset();
  int64_t damaged = keep_up_to(with_last ? step : step - 1, path);
  metrics_.emplace(path);
  if (damaged > 0) out_ << damaged_lines(path, damaged) << '\n';
  int64_t last = with_last ? step : step - 1;
  if (config.tensorboard) board_.emplace(folder_, last);
  last_step_ = step;
  next_step_ = step < total_steps ? step + 1 : -1;
  doing_ = {terminal_.seconds(), next_step_};
  if (step > 0)
    out_ << format("goes on after step %ld of %ld in ", long(step), long(total_steps)) << folder_ << std::endl;
}

void RunReport::settings(const Config& config) {
  std::lock_guard lock(mutex_);
  fresh_line() << "settings that are not the defaults (all are in " << folder_ << "/config.json):\n"
               << to_lines(config) << std::flush;
}

void RunReport::plan(const fsdp::Plan& predicted) {
  std::lock_guard lock(mutex_);
  fresh_line() << "one step, predicted:\n" << predicted.table() << std::flush;
}

std::ostream& RunReport::fresh_line() {
  if (terminal_.columns) out_ << kLineBegin;
  passing_ = false;
  printed_ = terminal_.seconds();
  return out_;
}

void RunReport::show(const std::vector<Field>& fields, bool stays) {
  fresh_line() << fitted(fields, terminal_.columns ? terminal_.columns() : INT_MAX);
  passing_ = !stays;
  if (stays) out_ << '\n';
  out_ << std::flush;
}

void RunReport::tick() {
  std::lock_guard lock(mutex_);
  double now = terminal_.seconds();
  if (!terminal_.columns || ended_ || now - printed_ < kSilence) return;
  std::vector<Field> fields{{doing_.step == 0  ? "before the first step"
                             : doing_.step < 0 ? "after the last step"
                                               : format("step %6ld", long(doing_.step)),
                             3}};
  if (!doing_.part.empty()) fields.push_back({doing_.part, 1});
  fields.push_back({format_fixed(now - doing_.since, 0) + " s", 2});
  show(fields, false);
}

void RunReport::on_step(const Stepped& s) {
  std::lock_guard lock(mutex_);
  last_step_ = s.step;
  if (!terminal_.columns) return;
  double now = terminal_.seconds(), passed = now - shown_.seconds;
  next_step_ = s.step < s.total_steps ? s.step + 1 : -1;
  doing_ = {now, next_step_};
  if (passed < kPause) return;
  std::vector<Field> fields{{format("step %6ld", long(s.step)), 3}};
  if (shown_.step >= 0 && s.step > shown_.step) {
    double left = double(s.total_steps - s.step) * passed / double(s.step - shown_.step);
    double speed = double(s.samples - shown_.samples) / passed;
    fields.push_back({speed_of(speed, speed * s.tokens_per_sample), 2});
    fields.push_back({"eta " + format_seconds(left), 1});
  }
  show(fields, false);
  shown_ = {now, s.step, s.samples};
}

void RunReport::testing(int64_t done, int64_t all) {
  std::lock_guard lock(mutex_);
  double now = terminal_.seconds();
  std::string part = concat("testing ", 100 * done / all, " %");
  doing_ = done < all ? Doing{now, last_step_, part} : Doing{now, next_step_};
  if (!terminal_.columns || now - shown_.seconds < kPause) return;
  show({{format("step %6ld", long(last_step_)), 2}, {part, 1}}, false);
  shown_ = {now};
}

std::vector<AppendedFile*> RunReport::appended() {
  std::vector<AppendedFile*> files{&*metrics_};
  if (board_) files.push_back(&board_->file());
  return files;
}

void RunReport::on_logged(const Metrics& m) {
  metrics_->add(to_json_line(m) + "\n");
  if (board_) board_->on_logged(m);
  for (AppendedFile* file : appended())
    if (!file->trouble().empty())
      tell_once(file->path(), file->trouble() + "; the run goes on, and adds what is missing when it can");
}

void RunReport::on_save(const Saved&) {
  for (AppendedFile* file : appended()) file->retry();
}

// What could not be written until now.
void RunReport::end_files() {
  for (const auto& [name, text] : std::exchange(unwritten_, {})) try_write(name, text);
  for (AppendedFile* file : appended()) {
    file->retry();
    if (file->missing() > 0) say(concat(file->trouble(), "; ", file->missing(), " records are missing there"));
  }
}

void RunReport::tell_once(const std::string& file, const std::string& line) {
  if (told_.insert(file).second) say(line);
}

void RunReport::on_metrics(const Metrics& m) {
  std::lock_guard lock(mutex_);
  const Score& score = m.scores.at(0);
  std::string tested = m.test_count > 0 ? format_fixed(score.value, 4) : "-";
  std::vector<Field> fields{{format("step %6ld", long(m.step)), 8},
                            {format("epoch %3ld", long(m.epoch)), 5},
                            {"loss " + format_fixed(m.loss, 5), 7},
                            {format("test_%s %6s", shortened(score.name).c_str(), tested.c_str()), 6},
                            {speed_of(m.samples_per_s, m.tokens_per_s, 8), 3},
                            {format("lr %.3g", m.lr), 4},
                            {"peak " + format_bytes(m.peak_bytes), 1},
                            {"eta " + format_seconds(m.eta_seconds), 2}};
  if (m.flops_per_s > 0) fields.insert(fields.begin() + 5, {format_fixed(m.flops_per_s / 1e9, 1) + " GFLOP/s", 2});
  if (m.skipped_steps > 0) fields.push_back({concat("skipped ", m.skipped_steps), 9});
  show(fields, !terminal_.columns || m.epoch_done);
  shown_ = {terminal_.seconds(), m.step, m.samples};
}

void RunReport::write_ledger(const Ledger& ledger) {
  Json all{{"current", ledger.current()}, {"peak", ledger.peak()}, {"categories", Json::object()}};
  for (Category::Kind category : ledger.categories()) {
    if (ledger.peak(category) == 0) continue;
    Json units = Json::object();
    for (int unit = 0; unit < ledger.unit_count(); ++unit) {
      Tag tag{category, uint16_t(unit)};
      if (ledger.peak(tag) > 0)
        units[ledger.unit_name(tag.unit)] = {{"current", ledger.current(tag)}, {"peak", ledger.peak(tag)}};
    }
    all["categories"][name_of(category)] = {
        {"current", ledger.current(category)}, {"peak", ledger.peak(category)}, {"units", units}};
  }
  try_write("ledger.json", all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunReport::table(const Rows& rows) {
  std::lock_guard lock(mutex_);
  for (const auto& [name, value] : rows) fresh_line() << format("  %-24s ", name.c_str()) << value << '\n';
  out_ << std::flush;  // an error that follows is the last on the screen
}

void RunReport::say(const std::string& line) {
  std::lock_guard lock(mutex_);
  fresh_line() << line << std::endl;
}

void RunReport::on_end(const Result& r) {
  std::lock_guard lock(mutex_);
  ended_ = true;
  end_files();
  if (r.stopped)
    fresh_line() << "stopped as asked after step " << r.steps << " of " << r.total_steps << " and saved in " << folder_
                 << std::endl;
  else
    fresh_line() << "done: test_" << r.scores.at(0).name << "=" << format_fixed(r.scores[0].value, 4)
                 << concat(" steps=", r.steps, " seconds=", format_fixed(r.seconds, 1), " run=") << folder_
                 << std::endl;
}

void RunReport::try_write(const std::string& name, const std::string& text) {
  try {
    write(name, text);
    unwritten_.erase(name);
  } catch (const Error& error) {
    unwritten_[name] = text;
    tell_once(name, concat(error.what(), "; the run goes on without it"));
  }
}

void RunReport::write(const std::string& name, const std::string& text) { replace_file(folder_ + "/" + name, text); }

}  // namespace shardgrad::train
