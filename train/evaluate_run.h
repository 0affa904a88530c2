#pragma once
// What was trained, evaluated again.

#include <ostream>
#include <string>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/evaluation.h>
#include <shardgrad/train/terminal.h>

namespace shardgrad::train {

/// Scores of a run's last checkpoint, on the test samples of `config`, which is the run's but for what the user changed
/// (data, strategy, device). `out` gets rank 0's line, and before it, on a terminal, what is
/// waited for. A collective. Throws Error(input) when nothing is saved, the
/// files are damaged, or model or data do not fit.
Evaluation evaluate_run(const Config& config, const std::string& run, dist::ProcessGroup& world, std::ostream& out,
                        const Terminal& terminal = {});

}  // namespace shardgrad::train
