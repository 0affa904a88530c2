// What the ranks sent, when, and who waited for it.

#include <algorithm>
#include <map>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/bars.h>
#include <shardgrad/picture/blocks.h>
#include <shardgrad/picture/lanes.h>
#include <shardgrad/picture/waits.h>
#include <shardgrad/train/report/html.h>
#include <shardgrad/train/report/page.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

using Json = RunFiles::Json;

std::vector<picture::RankRecords> records_of(const std::vector<RankTrace>& trace) {
  std::vector<picture::RankRecords> ranks;
  for (const RankTrace& rank : trace) ranks.push_back({rank.rank, last_step(rank), 0});
  return ranks;
}

std::string sent_by_unit(const RunFiles& run) {
  if (!run.about.is_object()) return html::nothing("about.json is not there, so the formula's numbers are not known.");
  const Json& plan = run.about.at("plan");
  std::map<std::string, int64_t> sent;
  int64_t rest = whole(plan.at("bytes_sent")), all = 0;
  bool clips = run.config.value("clip_grad_norm", 0.0) > 0;
  for (const Record& record : last_step(run.trace[0])) {
    if (record.phase == "grad_norm" && !clips) continue;  // for a line of progress, which is no part of the plan
    sent[record.unit] += record.bytes_sent;
    all += record.bytes_sent;
  }
  picture::Bars bars{{"sent", concat("Bytes that rank 0 sent in step ", run.trace[0].steps.back().number),
                      "By unit, beside the plan's."},
                     picture::Unit::bytes,
                     "sent",
                     "plan",
                     {}};
  for (const Json& unit : plan.at("units")) {
    std::string name = unit.at("name");
    int64_t formula = whole(unit.at("bytes_sent"));
    bars.pairs.push_back({name, double(sent[name]), double(formula)});
    rest -= formula;
    all -= sent[name];
  }
  if (rest != 0 || all != 0)
    bars.pairs.push_back({"outside of units", double(all), double(std::max<int64_t>(0, rest))});
  return draw(bars);
}

// A trace has no more than its first ranks.
bool is_of_some(const RunFiles& run) {
  return run.about.is_object() && whole(run.about.at("ranks")) > int64_t(run.trace.size());
}

bool on_one_machine(const std::vector<RankTrace>& trace) {
  return std::ranges::all_of(trace, [&](const RankTrace& rank) { return rank.host == trace[0].host; });
}

std::string waits_of(const RunFiles& run) {
  const std::vector<RankTrace>& trace = run.trace;
  if (is_of_some(run)) return html::nothing("Not all ranks were traced, so it is not known who waited for whom.");
  if (!on_one_machine(trace))
    return html::nothing(
        "The ranks are on several machines, whose clocks are not good enough to say who waited for whom.");
  return draw(picture::WaitsPicture{{"waits", "Who waited for whom", "Until the last rank of a collective had come."},
                                    who_waited(records_of(trace))});
}

std::vector<std::string> pictures_of(const RunFiles& run) {
  const RankTrace& first = run.trace[0];
  std::vector<std::string> figures{
      draw(picture::Lanes{
          {"lanes",
           concat("Step ", first.steps.back().number, is_of_some(run) ? " on the first ranks" : " on every rank"),
           "Communication while a rank computes is hidden; the rest of it costs time."},
          records_of(run.trace)}),
      sent_by_unit(run)};
  if (run.trace.size() == 1) return figures;
  figures.push_back(waits_of(run));
  if (!is_of_some(run))
    figures.push_back(draw(picture::Blocks{{"moves", concat("What moved in step ", first.steps.back().number),
                                            "What each rank brought to a collective, and had then."},
                                           records_of(run.trace)}));
  return figures;
}

}  // namespace

std::string communication_part(const RunFiles& run) {
  bool traced = !run.trace.empty() && !run.trace[0].steps.empty();
  return html::section("communication", "Communication", "",
                       traced
                           ? html::grid(pictures_of(run))
                           : html::nothing("No step was traced (trace_steps), so it is not known what was sent when."));
}

}  // namespace shardgrad::train
