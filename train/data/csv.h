#pragma once
// Tables of numbers as training data. The first line names the columns. One of them is the target; every other that is
// not dropped is an input, and holds numbers:
//
//     rooms,age,town,price                read_csv({.path = "houses.csv", .target = "price", .drop = {"town"}})
//     3,12,Kiel,250                       inputs f32 (2): rooms, age, each standardised
//     5,70,Lübeck,310                     target f32 (1): price
//
// Inputs are standardised by the mean and deviation that each column has over the training rows. The whole table is in
// memory. csv_reader.h tells which files are read.

#include <string>
#include <vector>

#include <shardgrad/train/data/dataset.h>

namespace shardgrad::data {

enum class TargetKind { regression, classes };

struct CsvOptions {
  std::string path;
  std::string target;  ///< name of the column
  TargetKind kind = TargetKind::regression;
  char delimiter = ',';
  std::vector<std::string> drop;  ///< names of columns that are no inputs
  double test_share = 0.2;        ///< of the rows; which ones, is a function of seed and row (split.h)
  uint64_t seed = 0;
  bool standardise_target = false;  ///< of a regression
};

struct CsvData {
  Splits splits;                     ///< fields: inputs f32 (columns); target f32 (1), or class i64 ()
  std::vector<std::string> columns;  ///< names of the inputs, in the file's order
  std::vector<std::string> classes;  ///< the labels, in order: of their values where all are numbers; target i is one
  Standardisation target;            ///< how targets became those of the splits; empty: unchanged
};

/// Throws Error(input), with path, line, column and value, for a table that is not as above: a cell of an input that is
/// empty or no finite f32, a row of another length, a column without a name or with that of another, a target or a
/// dropped column that is not there, labels that are all alike, or too few rows for two parts.
CsvData read_csv(const CsvOptions& options);

}  // namespace shardgrad::data
