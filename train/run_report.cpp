#include <shardgrad/train/run_report.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train {

namespace {

using Json = nlohmann::ordered_json;

template <class... Args> std::string format(const char* pattern, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

// "NaN", whatever its sign.
std::string number(double value, int digits) { return std::isnan(value) ? "NaN" : format_fixed(value, digits); }

std::string make_run_folder(const Config& config) {
  std::error_code error;
  std::filesystem::create_directories(config.runs, error);
  for (int number = 1;; ++number) {
    std::string folder = config.runs + "/" + config.name + (number == 1 ? "" : concat("-", number));
    if (std::filesystem::create_directory(folder, error) || (config.resume && !error)) return folder;
    SG_CHECK(!error, "cannot make the run's folder '", folder, "': ", error.message(),
             "; set runs to a folder you may write to");
  }
}

// The lines of a metrics file up to `step`.
std::string lines_up_to(const std::string& path, int64_t step) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    Json metrics = Json::parse(line, nullptr, false);
    bool of_a_step = metrics.is_object() && metrics.contains("step") && metrics["step"].is_number_integer();
    if (of_a_step && metrics["step"] <= step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

std::string to_json_line(const Metrics& m) {
  auto finite = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  Json line{{"step", m.step}, {"epoch", m.epoch}, {"samples", m.samples}, {"loss", finite(m.loss)}};
  for (const Score& score : m.scores) line["test_" + score.name] = finite(score.value);
  line["test_count"] = m.test_count;
  line["lr"] = finite(m.lr);
  line["grad_norm"] = m.grad_norm ? finite(*m.grad_norm) : Json(nullptr);
  line["samples_per_s"] = finite(m.samples_per_s);
  line["peak_bytes"] = m.peak_bytes;
  return line.dump();
}

std::string format_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return format(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

std::string format_seconds(double seconds) {
  auto whole = int64_t(std::lround(std::max(0.0, seconds)));
  if (whole < 60) return format("%lds", long(whole));
  if (whole < 3600) return format("%ldm%02lds", long(whole / 60), long(whole % 60));
  return format("%ldh%02ldm", long(whole / 3600), long(whole / 60 % 60));
}

std::string format_fixed(double value, int digits) { return format("%.*f", digits, value); }

RunReport::RunReport(const Config& config, std::ostream& out, bool terminal)
    : folder_(make_run_folder(config)),
      out_(out),
      terminal_(terminal),
      metrics_(folder_ + "/metrics.jsonl", std::ios::app) {
  if (!metrics_) cannot("write", folder_ + "/metrics.jsonl");
  if (!config.resume) write("config.json", to_json(config));
  out_ << "configuration (saved as " << folder_ << "/config.json):\n" << to_lines(config) << std::flush;
}

void RunReport::resume(const Config& config, int64_t step, int64_t total_steps) {
  write("config.json", to_json(config));
  std::string path = folder_ + "/metrics.jsonl";
  metrics_.close();
  write("metrics.jsonl.tmp", lines_up_to(path, step));
  std::filesystem::rename(path + ".tmp", path);
  metrics_.open(path, std::ios::app);
  if (step > 0)
    out_ << format("goes on after step %ld of %ld in ", long(step), long(total_steps)) << folder_ << std::endl;
}

void RunReport::plan(const fsdp::Plan& predicted) {
  out_ << "one step, predicted:\n" << predicted.table() << std::flush;
}

void RunReport::on_metrics(const Metrics& m) {
  metrics_ << to_json_line(m) << std::endl;
  if (!metrics_) cannot("write", folder_ + "/metrics.jsonl");
  const Score& score = m.scores.at(0);
  std::string tested = m.test_count > 0 ? number(score.value, 4) : "-";
  std::string line =
      format("step %6ld  epoch %3ld  loss %s  test_%s %6s  %8.0f samples/s  lr %.3g  peak %s  eta %s", long(m.step),
             long(m.epoch), number(m.loss, 5).c_str(), shortened(score.name).c_str(), tested.c_str(), m.samples_per_s,
             m.lr, format_bytes(m.peak_bytes).c_str(), format_seconds(m.eta_seconds).c_str());
  if (terminal_)
    out_ << "\r\033[K" << line << (m.epoch_done ? "\n" : "") << std::flush;
  else
    out_ << line << std::endl;
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
  write("ledger.json", all.dump(2) + "\n");
}

void RunReport::table(const Rows& rows) {
  for (const auto& [name, value] : rows) out_ << format("  %-24s %s\n", name.c_str(), value.c_str());
}

void RunReport::say(const std::string& line) { out_ << (terminal_ ? "\r\033[K" : "") << line << std::endl; }

void RunReport::on_end(const Result& r) {
  if (r.stopped)
    out_ << "stopped as asked after step " << r.steps << " of " << r.total_steps << " and saved in " << folder_
         << "; --set resume=true with the name of that folder goes on" << std::endl;
  else
    out_ << "done: test_" << r.scores.at(0).name << "=" << number(r.scores[0].value, 4)
         << concat(" steps=", r.steps, " seconds=", format_fixed(r.seconds, 1), " run=") << folder_ << std::endl;
}

void RunReport::write(const std::string& name, const std::string& text) { write_file(folder_ + "/" + name, text); }

}  // namespace shardgrad::train
