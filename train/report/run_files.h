#pragma once
// Everything a run's page is drawn of: the files of its folder, and nothing else.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/train/checkpoint/manifest.h>
#include <shardgrad/train/trace.h>

namespace shardgrad::train {

struct RunFiles {
  using Json = nlohmann::ordered_json;
  std::string folder;
  Json config;                         ///< config.json
  Json about;                          ///< about.json; null where there is none
  Json ledger;                         ///< ledger.json; null where the run has not ended
  std::vector<Json> metrics;           ///< the lines of metrics.jsonl
  std::vector<RankTrace> trace;        ///< trace.json; empty where there is none
  std::optional<Manifest> checkpoint;  ///< the last one's run.json
  std::vector<std::string> notes;      ///< what is missing, and why that may be
};

/// Throws Error(input) for a folder that is none of a run, and naming the file when one is damaged. The last line of
/// metrics.jsonl, which a run that was killed may have written in part, is left out then.
RunFiles read_run(const std::string& folder);

}  // namespace shardgrad::train
