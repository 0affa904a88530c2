#pragma once
// The line a function is called from, by a default argument: std::source_location, which clang 14 lacks.

namespace shardgrad::sim {

struct SourceLine {
  const char* file;
  unsigned line;
  static constexpr SourceLine current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace shardgrad::sim
