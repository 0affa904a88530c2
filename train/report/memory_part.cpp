// Who owned the memory of rank 0: over the traced steps, and at most, beside the plan.

#include <algorithm>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/memory.h>
#include <shardgrad/picture/text.h>
#include <shardgrad/train/report/html.h>
#include <shardgrad/train/report/page.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

using Json = RunFiles::Json;

// A plan's step has one batch in memory and nothing of what data sets keep, and knows nothing of kernels' workspaces
// and of what a run does beside its steps.
bool is_of_steps(const std::string& owner) { return owner != "data" && owner != "workspace" && owner != "other"; }

std::string over_time(const RunFiles& run) {
  if (run.trace.empty() || run.trace[0].memory.moments.empty())
    return html::nothing("No step was traced (trace_steps), so there are no bytes over time.");
  const Json& plan = run.about.at("plan");
  auto peak_of = [&](const char* owner) { return whole(plan.at("peaks").value(owner, Json(0))); };
  picture::Memory memory{.caption = {"memory-picture", "Memory of rank 0 over the traced steps",
                                     "What a step needs: all but data, the kernels' workspaces, and other."},
                         .bytes = run.trace[0].memory,
                         .predicted = whole(plan.at("peak")) - peak_of("data") - peak_of("other")};
  std::erase_if(memory.bytes.owners, [](const auto& owner) { return !is_of_steps(owner.name); });
  for (const RankTrace::Step& step : run.trace[0].steps)
    memory.marks.push_back({step.begin, concat("step ", step.number)});
  return draw(memory);
}

std::string verdict(int64_t predicted, int64_t measured) {
  if (predicted == measured) return "<span class=\"same\">= plan</span>";
  int64_t more = measured - predicted;
  return concat("<span class=\"differs\">", more > 0 ? "+" : "−",
                html::text(picture::said(double(std::abs(more)), picture::Unit::bytes)), "</span>");
}

std::string peaks_table(const RunFiles& run) {
  const Json peaks = run.about.at("plan").at("peaks");
  const Json none = Json::object(), &owners = run.ledger.is_object() ? run.ledger.at("categories") : none;
  std::set<std::string> names;
  for (const auto& [name, bytes] : peaks.items()) names.insert(name);
  for (const auto& [name, bytes] : owners.items()) names.insert(name);
  std::vector<html::Row> rows;
  for (const std::string& name : names) {
    bool planned = is_of_steps(name), measured = run.ledger.is_object();
    int64_t most = owners.contains(name) ? whole(owners.at(name).at("peak")) : 0;
    int64_t predicted = whole(peaks.value(name, Json(0)));
    rows.push_back({html::text(name), planned ? html::bytes(predicted) : "", measured ? html::bytes(most) : "",
                    planned && measured ? verdict(predicted, most) : ""});
  }
  if (run.ledger.is_object()) rows.push_back({"everything at once", "", html::bytes(whole(run.ledger.at("peak"))), ""});
  return html::table({"peak of", "predicted", "measured", ""}, rows);
}

}  // namespace

std::string memory_part(const RunFiles& run) {
  std::string body = html::nothing("about.json is not there, so the plan is not known.");
  if (run.about.is_object()) body = html::grid({over_time(run), peaks_table(run)});
  return html::section("memory", "Memory",
                       "Every byte of rank 0 has an owner. Predicted is what the plan of a step said before the first "
                       "one; evaluation and what data sets keep come on top of it.",
                       body);
}

}  // namespace shardgrad::train
