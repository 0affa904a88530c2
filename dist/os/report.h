#pragma once
// The file by which the ranks of one mpirun tell their launcher how far the job is (SHARDGRAD_CAUSE_FILE):
//
//     here: rank 1                  one line for each rank, until all have found each other; then
//     started                       from rank 0; at last, from whoever knows first,
//     4 shardgrad: rank 2 died …    the exit code and the cause
//
// Several write at once, and the file never goes back: a cause stays the first one. Both ends lock the file.

#include <string>

namespace shardgrad::dist {

void report_here(const std::string& path, int rank);
void report_met(const std::string& path);
/// False when the file cannot be written.
bool report_cause(const std::string& path, int code, const std::string& line);

struct Report {
  std::string text;
  bool here(int rank) const;
  bool anybody_here() const;
  bool started() const;    ///< and has no cause
  bool has_cause() const;  ///< an exit code, a space, and the cause
};
/// Empty when there is none.
Report read_report(const std::string& path);

}  // namespace shardgrad::dist
