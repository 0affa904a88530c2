#pragma once
// Training data that NumPy has saved: one array of inputs, one of targets, row i of one belonging to row i of the
// other. They are read as they are needed, so they may be larger than memory.
//
//     np.save("x.npy", pictures.astype("<f4"))     read_npy({.inputs = "x.npy", .targets = "y.npy"})
//     np.save("y.npy", labels)                     inputs f32 (row's shape), target i64 ()
//
// npy_file.h tells which files are read.

#include <string>

#include <shardgrad/train/data/dataset.h>

namespace shardgrad::data {

/// How inputs are standardised: not at all, each column by its own mean and deviation over the training rows, or all
/// columns by one.
enum class Standardise { none, columns, all };

struct NpyOptions {
  std::string inputs, targets;
  std::string test_inputs, test_targets;  ///< another pair for the test; empty: a share of the first
  double test_share = 0.2;                ///< which rows, is a function of seed and row (split.h)
  uint64_t seed = 0;
  Standardise standardise = Standardise::none;
};

struct NpyData {
  /// Inputs: i64 where the file has i4 or i8 and they are not standardised, else f32; of a row's shape, (1) for an
  /// array without other dimensions. Targets: i64 of a row's shape, () where that is one number, for integers, which
  /// are labels; else f32 as inputs.
  Splits splits;
  int64_t classes = 0;  ///< one more than the largest label; 0 where targets are no labels
};

/// Reads every file once, for what is to be known of all rows. Throws Error(input), with path, row and value, for files
/// that do not belong together, an element that is no finite f32, a label below 0, or too few rows for two parts.
/// What is wrong with a single file: NpyFile.
NpyData read_npy(const NpyOptions& options);

}  // namespace shardgrad::data
