#include <shardgrad/train/data/column_statistics.h>

#include <cmath>

namespace shardgrad::data {

static double scale_of(double variance) { return variance > 0 ? std::sqrt(variance) : 1; }

void ColumnStatistics::add(std::span<const double> row) {
  ++count_;
  for (size_t c = 0; c < mean_.size(); ++c) {
    double before = row[c] - mean_[c];
    mean_[c] += before / count_;
    squares_[c] += before * (row[c] - mean_[c]);
  }
}

Standardisation ColumnStatistics::by_column() const {
  Standardisation result{mean_, {}};
  for (double squares : squares_) result.scale.push_back(scale_of(squares / count_));
  return result;
}

// The variance of all is the mean of the columns' own, and that of their means.
Standardisation ColumnStatistics::of_all() const {
  ColumnStatistics means(1);
  double variance = 0;
  for (size_t c = 0; c < mean_.size(); ++c) {
    means.add({&mean_[c], 1});
    variance += squares_[c] / count_ / double(mean_.size());
  }
  return {means.mean_, {scale_of(variance + means.squares_[0] / means.count_)}};
}

}  // namespace shardgrad::data
