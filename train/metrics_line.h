#pragma once
// A line of metrics.jsonl.

#include <string>

#include <shardgrad/train/callback.h>

namespace shardgrad::train {

/// One JSON object on one line, each score as "test_NAME"; a number that is not finite becomes null.
std::string to_json_line(const Metrics& metrics);
/// What such a line says, but for its scores.
Metrics parse_line(const std::string& line);

}  // namespace shardgrad::train
