#pragma once
// Lines of metrics.jsonl.

#include <cstdint>
#include <string>

#include <shardgrad/train/callback.h>

namespace shardgrad::train {

/// One JSON object on one line, each score as "test_NAME"; a number that is not finite becomes null.
std::string to_json_line(const Metrics& metrics);
/// What such a line says, but for its scores.
Metrics parse_line(const std::string& line);
/// Keeps the lines of a file of them up to `step`. It may be larger than memory. Returns how many lines, of those
/// before its last, were none.
int64_t keep_up_to(int64_t step, const std::string& path);
/// What is said of `count` lines of the file that are none.
std::string damaged_lines(const std::string& path, int64_t count);

}  // namespace shardgrad::train
