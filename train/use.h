#pragma once
// What was trained, in use: evaluated again, and asked about new samples.

#include <ostream>
#include <string>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/evaluation.h>

namespace shardgrad::train {

/// Scores of a run's last checkpoint, on the test samples of `config`, which is the run's but for what the user changed
/// (data, strategy, device). `out` gets rank 0's line. A collective. Throws Error(input) when nothing is saved, the
/// files are damaged, or model or data do not fit.
Evaluation evaluate_run(const Config& config, const std::string& run, dist::ProcessGroup& world, std::ostream& out);

/// Reads raw inputs, a row for each sample, from a .npy file, transforms them as the training data were, and writes
/// what the model says of each: a .npy file of f32 (rows, columns), or a .csv file with a line for the names of the
/// columns. Targets that were standardised come back in their own units, classes that were texts as `label`. Returns
/// the rows. Of one rank. Throws Error(input) like evaluate_run, for inputs of another shape, and for another ending of
/// `output`.
int64_t predict_run(const Config& config, const std::string& run, dist::ProcessGroup& world, const std::string& input,
                    const std::string& output);

}  // namespace shardgrad::train
