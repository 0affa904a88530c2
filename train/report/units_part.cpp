// What is gathered and released together.

#include <shardgrad/core/error.h>
#include <shardgrad/picture/strip.h>
#include <shardgrad/picture/text.h>
#include <shardgrad/train/report/html.h>
#include <shardgrad/train/report/page.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

using Json = RunFiles::Json;

std::string units_table(const Json& units) {
  int64_t all = 0;
  for (const Json& unit : units) all += whole(unit.at("parameters"));
  std::vector<html::Row> rows;
  for (const Json& unit : units) {
    int64_t parameters = whole(unit.at("parameters"));
    double share = all > 0 ? double(parameters) / double(all) : 0;
    rows.push_back({html::text(unit.at("name").get<std::string>()), html::count(parameters),
                    html::number(share, picture::percent_of(share)), html::bytes(whole(unit.at("full_bytes"))),
                    html::count(whole(unit.at("gathers"))), html::count(whole(unit.at("reductions"))),
                    html::bytes(whole(unit.at("bytes_sent")))});
  }
  return html::table({"unit", "parameters", "share", "gathered", "gathers a step", "reductions a step", "sent a step"},
                     rows);
}

}  // namespace

std::string units_part(const RunFiles& run) {
  std::vector<std::string> figures;
  if (!run.trace.empty() && !run.trace[0].steps.empty())
    figures.push_back(
        draw(picture::Strip{{"strip", concat("Units on rank 0 in step ", run.trace[0].steps.back().number),
                             "When the full parameters of a unit were in memory."},
                            last_step(run.trace[0])}));
  if (run.about.is_object()) figures.push_back(units_table(run.about.at("plan").at("units")));
  if (figures.empty()) figures.push_back(html::nothing("Neither about.json nor trace.json is there."));
  return html::section("units", "Units", "A unit is what is gathered and released together. The table is the plan's.",
                       html::grid(figures));
}

}  // namespace shardgrad::train
