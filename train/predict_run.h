#pragma once
// What was trained, asked about new samples.

#include <string>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/config.h>

namespace shardgrad::train {

struct Predicted {
  int64_t rows, step;  ///< step: of the checkpoint that was used
};

/// Reads raw inputs, a row for each sample (of one number: an array of one dimension, too), from a .npy file,
/// transforms them as the training data were, and writes what the model says of each: a .npy file of f32 (rows,
/// columns), or a .csv file with a line for the names of the columns. Targets that were standardised come back in their
/// own units, classes that were texts as `label`. `run` is a run's folder or a checkpoint's. Of one rank. Throws
/// Error(input) like evaluate_run, for inputs of another shape, and for another ending of `output`.
Predicted predict_run(const Config& config, const std::string& run, dist::ProcessGroup& world, const std::string& input,
                      const std::string& output);

}  // namespace shardgrad::train
