#pragma once
// Where progress is shown: on a terminal a line that the next one is written over, as wide as the window is then.

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/train/seconds.h>

namespace shardgrad::train {

inline constexpr double kSilence = 1.5;                 ///< seconds, after which it is said what goes on
inline constexpr std::chrono::milliseconds kTick(300);  ///< between looks whether they are over
inline constexpr const char* kLineBegin = "\r\033[K";   ///< to write over the line that is shown

struct Terminal {
  std::function<int()> columns{};  ///< how wide it is now; empty: no terminal, and every line stays
  std::function<double()> seconds = [] { return seconds_since({}); };  ///< on a clock; from any thread
};

/// How wide the terminal is that a file is; of what is none, or does not say: what `said` says (the value of COLUMNS,
/// or null), else 80.
int terminal_columns(int descriptor, const char* said);

/// How many letters a text of UTF-8 has.
int width_of(std::string_view text);

/// Lines of at most so many columns, broken between words, and within those that are longer.
std::vector<std::string> broken(const std::string& text, int columns);

/// A part of a line. The higher its worth, the narrower the lines that it stands in.
struct Field {
  std::string text;
  int worth;
};
/// Those fields that fit into the columns but one, two spaces between them: those of more worth first, and of equal
/// worth the later.
std::string fitted(std::vector<Field> fields, int columns);

}  // namespace shardgrad::train
