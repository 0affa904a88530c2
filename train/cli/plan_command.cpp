#include <algorithm>
#include <iostream>
#include <set>

#include <shardgrad/core/columns.h>
#include <shardgrad/core/context.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/text.h>

namespace shardgrad::cli {

namespace {

std::string fixed(double value, int digits) { return train::format_fixed(value, digits); }

// Peaks of GiB, bytes sent of GB, and what is asked for beside them.
std::string cell_of(const train::Offer& offer, const PlanOptions& options) {
  if (!offer.why_not.empty()) return "-";
  double peak = double(offer.peak) / (1 << 30), sent = double(offer.bytes_sent) * 1e-9;
  std::string text = concat(fixed(peak, 3), " / ", fixed(sent, 3));
  if (options.bandwidth > 0) text += concat(" / ", fixed(sent / options.bandwidth, 4));
  if (options.memory > 0 && peak <= options.memory) text += " *";
  return text;
}

std::string fits(const std::vector<train::Offer>& offers, const PlanOptions& options) {
  std::string text;
  for (const train::Offer& offer : offers) {
    if (offer.ranks != options.ranks || !offer.why_not.empty()) continue;
    double peak = double(offer.peak) / (1 << 30);
    text += concat(text.empty() ? "" : ", ", offer.strategy, peak <= options.memory ? " yes (" : " no (",
                   fixed(peak, 1), ")");
  }
  return concat("fits in ", options.memory, " GiB: ", text, " at ", options.ranks,
                options.ranks == 1 ? " rank\n" : " ranks\n");
}

int compare(const train::Config& config, const std::vector<data::Field>& fields, const PlanOptions& options) {
  std::vector<int> counts;
  for (int count = 1; count <= 4096; count *= 2) counts.push_back(count);
  if (!std::ranges::count(counts, options.ranks))
    counts.insert(std::ranges::upper_bound(counts, options.ranks), options.ranks);
  std::vector<train::Offer> all = train::offers(config, fields, counts);
  std::vector<std::vector<std::string>> rows{{"ranks"}};
  std::set<std::string> reasons;
  for (const train::Offer& offer : all) {
    if (offer.ranks == counts[0]) rows[0].push_back(offer.strategy);
    std::string name = std::to_string(offer.ranks);
    if (rows.back()[0] != name) rows.push_back({name});
    rows.back().push_back(cell_of(offer, options));
    if (!offer.why_not.empty()) reasons.insert(offer.why_not);
  }
  std::cout << "predicted, batch " << config.batch << ": GiB at most in a rank's memory / GB that it sends in a step"
            << (options.bandwidth > 0 ? " / s that sending takes at least" : "")
            << (options.memory > 0 ? ", * where it fits" : "") << "\n"
            << in_columns(rows);
  for (const std::string& reason : reasons) std::cout << "- " << reason << "\n";
  if (options.memory > 0) std::cout << fits(all, options);
  std::cout << std::flush;
  return 0;
}

}  // namespace

int plan_command(const PlanOptions& options) {
  train::Config config = train::read_config(options.config, options.overrides, *options.registry);
  Context context;  // what is read of the data lives in it
  auto fields = config.registry->fields_of(config.data, uint64_t(config.seed));
  if (options.compare) return compare(config, fields, options);
  fsdp::Plan predicted = train::plan(config, fields, options.ranks, kMeta);
  std::cout << "predicted for " << options.ranks << " ranks, strategy " << config.strategy << ", batch " << config.batch
            << ", one step:\n"
            << predicted.table();
  double peak = double(predicted.peak) / (1 << 30), sent = double(predicted.bytes_sent) * 1e-9;
  if (options.memory > 0)
    std::cout << (peak <= options.memory ? "fits" : "does not fit") << " in " << options.memory << " GiB\n";
  if (options.bandwidth > 0) std::cout << "sending takes at least " << fixed(sent / options.bandwidth, 4) << " s\n";
  if (!options.measure) return 0;
  fsdp::Plan measured = train::plan(config, fields, options.ranks, parse_device(config.device));
  std::cout << "\nmeasured with ranks as threads of this process:\n" << measured.table();
  std::cout << (measured == predicted ? "as predicted" : "NOT as predicted; please report this") << std::endl;
  return measured == predicted ? 0 : int(ErrorKind::internal);
}

}  // namespace shardgrad::cli
