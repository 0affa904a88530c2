#include <shardgrad/train/terminal.h>

#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <numeric>
#include <sstream>

namespace shardgrad::train {

int terminal_columns(int descriptor, const char* said) {
  winsize window{};
  if (ioctl(descriptor, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) return window.ws_col;
  int columns = 0;
  if (said) std::from_chars(said, said + std::strlen(said), columns);
  return columns > 0 ? columns : 80;
}

int width_of(std::string_view text) {
  return int(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));  // not the later bytes of a letter
}

std::string fitted(std::vector<Field> fields, int columns) {
  std::vector<size_t> by_worth(fields.size());
  std::iota(by_worth.rbegin(), by_worth.rend(), size_t(0));
  std::ranges::stable_sort(by_worth, std::greater(), [&](size_t i) { return fields[i].worth; });
  std::vector<bool> fits(fields.size());
  int width = -2;
  for (size_t i : by_worth) {
    int wider = width + 2 + width_of(fields[i].text);
    if ((fits[i] = wider < columns)) width = wider;
  }
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i)
    if (fits[i]) line += (line.empty() ? "" : "  ") + fields[i].text;
  return line;
}

// The first `columns` letters of a word.
static std::string cut(const std::string& word, int columns) {
  size_t bytes = 0;
  for (int letters = 0; bytes < word.size(); ++bytes)
    if ((word[bytes] & 0xC0) != 0x80 && ++letters > columns) break;
  return word.substr(0, bytes);
}

std::vector<std::string> broken(const std::string& text, int columns) {
  std::vector<std::string> lines{""};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int room = columns - width_of(lines.back()) - (lines.back().empty() ? 0 : 1);
    if (!lines.back().empty() && width_of(word) > room) lines.emplace_back();
    for (std::string piece; width_of(word) > columns; word.erase(0, piece.size())) {
      lines.back() = piece = cut(word, columns);
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

}  // namespace shardgrad::train
