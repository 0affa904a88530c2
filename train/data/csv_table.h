#pragma once
// The columns of a CSV file that are used, as numbers.

#include <string>
#include <vector>

#include <shardgrad/train/data/csv.h>

namespace shardgrad::data {

struct CsvTable {
  std::vector<std::string> columns;  ///< names of the inputs
  std::vector<double> inputs;        ///< row by row, each a finite f32 to rounding
  std::vector<double> targets;       ///< likewise, or which of `classes`
  std::vector<std::string> classes;  ///< in order; empty for a regression
};

/// Throws Error(input) as read_csv.
CsvTable read_table(const CsvOptions& options);

}  // namespace shardgrad::data
