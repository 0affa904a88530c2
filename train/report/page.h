#pragma once
// The page of a run (`shardgrad report RUN`): one HTML file, without scripts, that fetches nothing. It says nothing
// that the run's files do not say: each number on it is one of theirs, or a sum or share of them.

#include <string>

#include <shardgrad/train/report/run_files.h>

namespace shardgrad::train {

/// A file that lacks what belongs there is left out, and a note names it. Throws Error(input) where that is
/// config.json.
std::string page(const RunFiles& run);

/// The parts of it, each a section of html, in the order in which they stand.
std::string summary_part(const RunFiles& run);
std::string learning_part(const RunFiles& run);
std::string memory_part(const RunFiles& run);
std::string communication_part(const RunFiles& run);
std::string units_part(const RunFiles& run);
std::string settings_part(const RunFiles& run);

/// Of the last traced step, of all ranks: the share of communication during which its rank computed; none where
/// nothing was sent.
std::optional<double> hidden_share(const std::vector<RankTrace>& trace);

}  // namespace shardgrad::train
