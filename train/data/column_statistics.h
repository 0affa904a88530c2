#pragma once
// Mean and standard deviation of columns whose rows come one after the other, as training inputs are standardised by.
// Welford's update needs one pass and does not subtract large sums: of 1e8 + 1, 1e8 + 2, 1e8 + 3 it finds a deviation
// of 0.816, where the mean of squares minus the square of the mean, in double, is off by its own size. A constant
// column is found exactly, for no row differs from the mean of those before it.

#include <span>
#include <vector>

#include <shardgrad/train/data/dataset.h>

namespace shardgrad::data {

class ColumnStatistics {
 public:
  explicit ColumnStatistics(size_t columns) : mean_(columns), squares_(columns) {}
  void add(std::span<const double> row);
  /// Each column by its own mean and deviation; one that is constant has scale 1.
  Standardisation by_column() const;
  /// All columns by one mean and deviation.
  Standardisation of_all() const;

 private:
  double count_ = 0;
  std::vector<double> mean_, squares_;  // squares of the differences from the mean, added up
};

}  // namespace shardgrad::data
