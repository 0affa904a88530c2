// What the run learned: its numbers over the steps.

#include <cmath>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/lines.h>
#include <shardgrad/train/report/html.h>
#include <shardgrad/train/report/page.h>

namespace shardgrad::train {
namespace {

using Json = RunFiles::Json;

// A value that is null is none that is known; of the loss it is one that is not finite.
picture::Series series_of(const RunFiles& run, const std::string& key, bool null_is_nan) {
  picture::Series series{key, {}};
  for (const Json& line : run.metrics) {
    auto found = line.find(key);
    if (found == line.end()) continue;
    if (found->is_number())
      series.points.push_back({line.at("step"), found->get<double>()});
    else if (null_is_nan)
      series.points.push_back({line.at("step"), std::nan("")});
  }
  return series;
}

struct Curve {
  std::string key, title, words;
  bool log = false, null_is_nan = false;
};

// Of so many that single ones jump: means of as many in a row as make a hundred points.
constexpr size_t kMany = 400;
picture::Series means_of(const picture::Series& all) {
  size_t count = all.points.size() / 100;
  picture::Series means{concat("mean of ", count), {}};
  for (size_t begin = 0; begin + count <= all.points.size(); begin += count) {
    double sum = 0;
    for (size_t i = begin; i < begin + count; ++i) sum += all.points[i].y;
    means.points.push_back({all.points[begin + count - 1].x, sum / double(count)});
  }
  return means;
}

std::string drawn(const RunFiles& run, const Curve& curve, size_t number) {
  picture::Series series = series_of(run, curve.key, curve.null_is_nan);
  if (series.points.empty()) return "";
  bool jumps = curve.key == "loss" && series.points.size() >= kMany;
  series.name = jumps ? "each line" : "";
  picture::Caption caption{concat("curve", number), curve.title, curve.words};
  picture::Lines lines{.caption = caption, .y_name = curve.key, .log = curve.log, .series = {series}};
  if (jumps) lines.series.push_back(means_of(series));
  return draw(lines);
}

std::vector<Curve> curves_of(const RunFiles& run) {
  bool each = run.config.value("log_steps", false);
  const char* of = each ? "Of every step." : "Mean over the steps since the line before.";
  std::vector<Curve> curves{{"loss", "Training loss", of, false, true}};
  for (const auto& [key, value] : run.metrics.front().items())
    if (key.starts_with("test_") && key != "test_count")
      curves.push_back({key, "Test " + key.substr(5), "On all samples of the test set."});
  curves.push_back({"lr", "Learning rate", ""});
  curves.push_back({"grad_norm", "Norm of the gradients", "All together, before clipping.", true});
  bool tokens = run.metrics.front().contains("tokens_per_s");  // what a language task is measured in
  curves.push_back({tokens ? "tokens_per_s" : "samples_per_s", tokens ? "Tokens per second" : "Samples per second",
                    "Of all ranks together."});
  return curves;
}

// All of them where they are few, else every so manieth, and the last.
std::vector<const Json*> chosen(const std::vector<Json>& lines) {
  constexpr size_t kMost = 200;
  std::vector<const Json*> some;
  size_t stride = (lines.size() + kMost - 1) / kMost;
  for (size_t i = 0; i < lines.size(); ++i)
    if (i % stride == 0 || i + 1 == lines.size()) some.push_back(&lines[i]);
  return some;
}

std::string cell_of(const Json& line, const std::string& key) {
  auto found = line.find(key);
  if (found == line.end() || found->is_null()) return "";
  std::string text = found->dump(-1, ' ', false, Json::error_handler_t::replace);
  return found->is_number() ? html::number(found->get<double>(), text) : html::text(text);
}

std::string lines_as_table(const RunFiles& run) {
  html::Row keys;
  for (const auto& [key, value] : run.metrics.front().items()) keys.push_back(key);
  std::vector<html::Row> rows;
  std::vector<const Json*> lines = chosen(run.metrics);
  for (const Json* line : lines) {
    html::Row row;
    for (const std::string& key : keys) row.push_back(cell_of(*line, key));
    rows.push_back(std::move(row));
  }
  for (std::string& key : keys) key = html::text(key);
  std::string title = concat(lines.size() == 1 ? "The line" : concat(lines.size(), " lines"), " of metrics.jsonl");
  if (lines.size() < run.metrics.size()) title += concat(", of ", run.metrics.size());
  return concat("<details><summary>", title, "</summary>\n", html::figure(html::table(keys, rows)), "</details>\n");
}

}  // namespace

std::string learning_part(const RunFiles& run) {
  if (run.metrics.empty())
    return html::section("learning", "Learning", "", html::nothing("metrics.jsonl has no line yet."));
  std::vector<std::string> figures;
  for (const Curve& curve : curves_of(run))
    if (std::string picture = drawn(run, curve, figures.size()); !picture.empty())
      figures.push_back(std::move(picture));
  return html::section("learning", "Learning", "", html::grid(figures) + lines_as_table(run));
}

}  // namespace shardgrad::train
