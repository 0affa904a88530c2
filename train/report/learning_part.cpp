// What the run learned: its numbers over the steps.

#include <cmath>
#include <set>

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

std::string drawn(const RunFiles& run, const Curve& curve, size_t number) {
  picture::Series series = series_of(run, curve.key, curve.null_is_nan);
  if (series.points.empty()) return "";
  series.name = "";
  picture::Caption caption{concat("curve", number), curve.title, curve.words};
  return draw(picture::Lines{.caption = caption, .y_name = curve.key, .log = curve.log, .series = {std::move(series)}});
}

std::vector<Curve> curves_of(const RunFiles& run) {
  std::vector<Curve> curves{{"loss", "Training loss", "Mean over the steps since the last line.", false, true}};
  std::set<std::string> scores;
  for (const Json& line : run.metrics)
    for (const auto& [key, value] : line.items())
      if (key.starts_with("test_") && key != "test_count" && scores.insert(key).second)
        curves.push_back({key, "Test " + key.substr(5), "On all samples of the test set."});
  curves.push_back({"lr", "Learning rate", ""});
  curves.push_back({"grad_norm", "Norm of the gradients", "All together, before clipping.", true});
  curves.push_back({"samples_per_s", "Samples per second", "Of all ranks together."});
  return curves;
}

std::string lines_as_table(const RunFiles& run) {
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const Json& line : run.metrics)
    for (const auto& [key, value] : line.items())
      if (seen.insert(key).second) keys.push_back(key);
  std::vector<html::Row> rows;
  for (const Json& line : run.metrics) {
    html::Row row;
    for (const std::string& key : keys) {
      Json value = line.value(key, Json());
      row.push_back(value.is_number() ? html::number(value, value.dump())
                    : value.is_null() ? ""
                                      : html::text(value.dump()));
    }
    rows.push_back(std::move(row));
  }
  for (std::string& key : keys) key = html::text(key);
  return concat("<details><summary>All ", rows.size(), " lines of metrics.jsonl</summary>\n",
                html::figure(html::table(keys, rows)), "</details>\n");
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
