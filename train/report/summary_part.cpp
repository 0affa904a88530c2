// The page's top: how the run stands, in a few numbers.

#include <shardgrad/core/error.h>
#include <shardgrad/picture/overlap.h>
#include <shardgrad/picture/text.h>
#include <shardgrad/train/report/html.h>
#include <shardgrad/train/report/page.h>
#include <shardgrad/train/shallow_json.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {
namespace {

using Json = RunFiles::Json;

std::string tile(const std::string& value, std::string_view words) {
  return concat("<div class=\"tile\"><b>", value, "</b><span>", html::text(words), "</span></div>\n");
}

// The last line that has this key as a number.
const Json* last_with(const RunFiles& run, const std::string& key) {
  for (auto line = run.metrics.rbegin(); line != run.metrics.rend(); ++line)
    if (line->contains(key) && line->at(key).is_number()) return &*line;
  return nullptr;
}

std::string score_tiles(const RunFiles& run) {
  std::string tiles;
  if (run.metrics.empty()) return tiles;
  for (const auto& [key, unused] : run.metrics.back().items())
    if (key.starts_with("test_") && key != "test_count")
      if (const Json* line = last_with(run, key)) {
        double value = line->at(key);
        tiles += tile(html::number(value, format_fixed(value, 4)),
                      concat("test ", key.substr(5), " after step ", line->at("step").dump()));
      }
  if (const Json* line = last_with(run, "loss")) {
    double value = line->at("loss");
    tiles +=
        tile(html::number(value, format_fixed(value, 5)), concat("training loss up to step ", line->at("step").dump()));
  }
  return tiles;
}

std::string cost_tiles(const RunFiles& run) {
  std::string tiles;
  const Json end = run.about.is_object() ? run.about.value("end", Json()) : Json();
  if (end.is_object()) {
    bool tokens = end.contains("tokens_per_s");
    double rate = end.at(tokens ? "tokens_per_s" : "samples_per_s"), seconds = end.at("seconds");
    tiles += tile(html::number(rate, format_fixed(rate, 0)), tokens ? "tokens per second" : "samples per second");
    tiles +=
        tile(html::number(seconds, picture::said(seconds, picture::Unit::seconds)), "this process's training took");
    if (end.contains("step_bytes")) {  // not after one step alone
      int64_t sent = whole(end.at("step_bytes")), predicted = whole(run.about.at("plan").at("bytes_sent"));
      std::string plan = picture::said(double(predicted), picture::Unit::bytes);
      tiles +=
          tile(html::bytes(sent), concat("sent by rank 0 in a step, ",
                                         sent == predicted ? "as predicted" : concat("not ", plan, ", as predicted")));
    }
  }
  if (run.ledger.is_object())
    tiles += tile(html::bytes(whole(run.ledger.at("peak"))), "peak memory of rank 0, data and all");
  if (auto share = hidden_share(run.trace))
    tiles += tile(html::number(*share, picture::percent_of(*share)), "of communication hidden behind computing");
  return tiles;
}

std::string state_of(const RunFiles& run) {
  int64_t step = run.metrics.empty() ? 0 : whole(run.metrics.back().at("step"));
  if (!run.about.is_object()) return "<span class=\"state open\">has not begun</span>";
  const Json end = run.about.value("end", Json());
  int64_t total = whole(run.about.at("total_steps"));
  if (!end.is_object())
    return concat("<span class=\"state open\">has not ended: it trains, or failed, or was killed; it told of step ",
                  html::count(step), " of ", html::count(total), "</span>");
  std::string after = concat(" after step ", html::count(whole(end.at("steps"))), " of ", html::count(total));
  if (end.at("stopped")) return concat("<span class=\"state open\">stopped as asked", after, "</span>");
  return concat("<span class=\"state\">ended", after, "</span>");
}

std::string where_of(const RunFiles& run) {
  const Json& about = run.about;
  if (!about.is_object()) return "";
  auto said = [&](const char* key) { return html::text(about.at(key).get<std::string>()); };
  std::string date = about.at("written");
  for (auto [from, to] : {std::pair("T", " "), std::pair("Z", " UTC")})
    if (size_t at = date.find(from); at != std::string::npos) date.replace(at, 1, to);
  return concat("<p>", html::count(whole(about.at("ranks"))), about.at("ranks") == 1 ? " rank" : " ranks", " (",
                said("transport"), ") on ", said("device"), ", ", said("host"), ", strategy ",
                html::text(run.config.value("strategy", "?")), ", ", html::text(date), "</p>\n");
}

}  // namespace

std::optional<double> hidden_share(const std::vector<RankTrace>& trace) {
  double hidden = 0, all = 0;
  for (const RankTrace& rank : trace) {
    std::vector<Record> records = last_step(rank);
    picture::Overlap overlap = picture::overlap_of(records, picture::last_moment(records));
    hidden += overlap.hidden;
    all += overlap.communication;
  }
  return all > 0 ? std::optional(hidden / all) : std::nullopt;
}

std::string summary_part(const RunFiles& run) {
  std::string notes;
  for (const std::string& note : run.notes) notes += html::nothing(note);
  return concat("<section id=\"summary\">\n", where_of(run), state_of(run), "\n<div class=\"tiles\">\n",
                score_tiles(run), cost_tiles(run), "</div>\n", notes, "</section>\n");
}

}  // namespace shardgrad::train
