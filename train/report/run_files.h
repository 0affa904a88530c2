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

/// Throws Error(input) for a folder that is none of a run. Other files of it that are damaged are left out as if they
/// were missing, and notes name them; so are damaged lines of metrics.jsonl. Its last one, which a run that was killed
/// may have written in part, is left out without a word.
RunFiles read_run(const std::string& folder);

}  // namespace shardgrad::train
