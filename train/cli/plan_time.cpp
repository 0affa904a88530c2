#include <shardgrad/train/cli/plan_time.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include <shardgrad/core/columns.h>
#include <shardgrad/core/context.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/cli/speed_text.h>
#include <shardgrad/train/network.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/short_batches.h>
#include <shardgrad/train/step_time.h>
#include <shardgrad/train/text.h>

namespace shardgrad::cli {

std::vector<int> counts_with(int also) {
  std::vector<int> counts;
  for (int count = 1; count <= 4096; count *= 2) counts.push_back(count);
  if (!std::ranges::count(counts, also)) counts.insert(std::ranges::upper_bound(counts, also), also);
  return counts;
}

namespace {

// What connects the ranks, and in words where that is from.
std::pair<train::Rates, std::string> network_of(const PlanOptions& options) {
  train::Rates said{.bandwidth = options.bandwidth * 1e9, .latency = options.latency / 1e6};
  std::string from = options.from.empty() ? "as --bandwidth and --latency say" : options.from;
  if (options.bandwidth == 0 && options.latency == 0) {
    said = train::rates_of(train::network_here(kCpu));
    from = "as between two ranks in this machine's memory; --network, --bandwidth and --latency say others";
  }
  return {
      said,
      concat("sending: a collective takes ", train::format_fixed(said.latency * 1e6, 1), " us, and its bytes ",
             said.bandwidth > 0 ? concat("go at ", amount(said.bandwidth, "B/s")) : "take no time", ", ", from, "\n")};
}

// Milliseconds of a step, and of it in which it only sends; efficiency.
std::string cell_of(const train::StepTime& time, int ranks, double of_one) {
  return concat(train::format_fixed(1e3 * time.step, 2), " / ", train::format_fixed(1e3 * time.exposed, 2), " / ",
                train::format_fixed(100 * of_one / (ranks * time.step), 0), " %",
                time.sending > time.computing ? " s" : "");
}

}  // namespace

int time_steps(const train::Config& config, const data::Outline& data, const PlanOptions& options) {
  auto [network, words] = network_of(options);
  Device device = choose_device(config.device, true);
  train::StepClock clock(config, data, device, options.per_machine, options.threads);
  std::vector<std::string> strategies = train::strategies_for(config);
  std::vector<std::vector<std::string>> rows{{"ranks"}};
  rows[0].insert(rows[0].end(), strategies.begin(), strategies.end());
  std::set<std::string> reasons;
  std::map<std::string, double> of_one;
  for (int ranks : counts_with(options.ranks)) {
    rows.push_back({std::to_string(ranks)});
    for (const std::string& strategy : strategies) try {
        train::check_short_batches(train::with_strategy(config, strategy), data, ranks);
        train::StepTime time = clock.of(strategy, ranks, network);
        // One rank alone has nobody to share a model with: hybrid is zero3 there.
        double one = of_one.try_emplace(strategy == "hybrid" ? "zero3" : strategy, time.step * ranks).first->second;
        rows.back().push_back(cell_of(time, ranks, one));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::input) throw;
        rows.back().push_back("-");
        reasons.insert(error.what());
      }
  }
  std::cout << "predicted, batch " << config.batch
            << ": ms of a step / ms of it that it only sends / efficiency, which is "
            << "one rank's time over ranks times this; s: sends longer than it computes\n"
            << in_columns(rows) << "computing: as timed on this machine's " << device << ", "
            << (options.per_machine > 1 ? concat("where it has ", options.per_machine, " ranks side by side")
                                        : "of which a rank has one")
            << (options.threads > 0 ? concat(", with ", options.threads, options.threads == 1 ? " thread" : " threads")
                                    : "")
            << "; --per-machine and --threads say others\n"
            << words;
  for (const std::string& reason : reasons) std::cout << "- " << reason << "\n";
  std::cout << std::flush;
  return 0;
}

}  // namespace shardgrad::cli
