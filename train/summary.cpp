#include <shardgrad/train/summary.h>

#include <set>

#include <shardgrad/core/context.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::train {
namespace {

void add_peaks(RunReport::Rows& rows, const fsdp::Plan& plan) {
  const Ledger& ledger = context().ledger();
  std::set<Category::Kind> categories;
  for (const auto& [category, bytes] : plan.peaks) categories.insert(category);
  for (Category::Kind category : ledger.categories()) categories.insert(category);
  for (Category::Kind category : categories) {
    auto predicted = plan.peaks.find(category);
    int64_t peak = ledger.peak(category);
    bool known = predicted != plan.peaks.end() && category != Category::data;  // a step sees one batch of it
    if (peak == 0 && !known) continue;
    rows.push_back({concat("peak ", category.name()), format_bytes(peak)});
    if (known) rows.back().second += ", predicted " + format_bytes(predicted->second);
  }
  rows.push_back({"peak of everything", format_bytes(ledger.peak())});
}

}  // namespace

RunReport::Rows summary(const Config& config, const dist::ProcessGroup& world, const fsdp::Plan& predicted,
                        const Metrics& metrics, const Meter& meter, int64_t evaluation_bytes) {
  RunReport::Rows rows{{"ranks", concat(world.size(), " (", world.kind(), "), ", context().threads(),
                                        context().threads() == 1 ? " thread each" : " threads each")},
                       {"strategy", config.strategy},
                       {"steps", std::to_string(meter.steps_done())},
                       {"training loss", format_fixed(metrics.loss, 5)},
                       {"samples/s", format_fixed(meter.samples_per_s(), 0)},
                       {"sent by a step and rank",
                        concat(meter.step_bytes() ? format_bytes(*meter.step_bytes()) : "not known after one step",
                               ", predicted ", format_bytes(predicted.bytes_sent))},
                       {"sent by evaluation", concat(format_bytes(evaluation_bytes), " in all")}};
  if (meter.tokens_per_s() > 0) rows.insert(rows.begin() + 5, {"tokens/s", format_fixed(meter.tokens_per_s(), 0)});
  for (size_t i = 0; i < metrics.scores.size(); ++i)
    rows.insert(rows.begin() + 3 + int64_t(i),
                {"test " + metrics.scores[i].name,
                 concat(format_fixed(metrics.scores[i].value, 4), " on ", metrics.test_count, " samples")});
  add_peaks(rows, predicted);
  return rows;
}

}  // namespace shardgrad::train
