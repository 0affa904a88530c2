#pragma once
// Tables for a terminal.

#include <string>
#include <vector>

namespace shardgrad {

/// Rows of equally many cells, each column as wide as what stands in it; the first one stands to the left.
std::string in_columns(const std::vector<std::vector<std::string>>& rows);

}  // namespace shardgrad
