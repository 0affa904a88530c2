#pragma once
// `shardgrad plan --time`.

#include <vector>

#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::cli {

/// The numbers of ranks of a table: 1, 2, 4 … 4096, and `also`.
std::vector<int> counts_with(int also);

/// Prints how long a step takes under every strategy on so many ranks. Returns the exit code.
int time_steps(const train::Config& config, const data::Outline& data, const PlanOptions& options);

}  // namespace shardgrad::cli
