#include <shardgrad/core/columns.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace shardgrad {

std::string in_columns(const std::vector<std::vector<std::string>>& rows) {
  std::ostringstream out;
  for (const auto& row : rows)
    for (size_t column = 0; column < row.size(); ++column) {
      size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other.at(column).size());
      out << (column == 0 ? std::left : std::right) << (column == 0 ? "" : "  ") << std::setw(int(width)) << row[column]
          << (column + 1 == row.size() ? "\n" : "");
    }
  return out.str();
}

}  // namespace shardgrad
