#pragma once
// Another program, asked for what it prints.

#include <chrono>
#include <string>
#include <vector>

namespace shardgrad::dist {

struct CommandOutput {
  bool in_time = true;  ///< else it was killed, and the rest is what it had said by then
  int code = 0;         ///< as a shell tells it: 127 when it could not be started
  std::string text;     ///< standard output and error, the first 64 KiB
};

/// Runs argv, with nothing on its standard input, in a process group of its own, all of which is killed when the time
/// is over. PATH finds the program.
CommandOutput output_of(const std::vector<std::string>& argv, std::chrono::milliseconds limit);

}  // namespace shardgrad::dist
