#pragma once
// What is probably a mistake, though nothing refuses it. Errors are thrown (core/error.h).

#include <string>

namespace shardgrad {

/// Writes `text` as one line to standard error, on rank 0 only: what holds for all ranks is said once.
void warn(const std::string& text);

}  // namespace shardgrad
