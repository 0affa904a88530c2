#pragma once
// Which rows of a file are kept for the test. Whether a row is one of them is a pure function of (seed, row number): so
// it is the same on every rank and in every run, and rows that are added at the end change none before them.

#include <cstdint>
#include <string>

namespace shardgrad::data {

/// Row `row`, of which a share of `share` is kept.
bool is_test_row(uint64_t seed, int64_t row, double share);

/// Throws Error(input) unless 0 < share < 1.
void check_test_share(double share);

/// Throws Error(input) when one of the parts of the file at `path` has no rows.
void check_parts(const std::string& path, int64_t train, int64_t test);

}  // namespace shardgrad::data
