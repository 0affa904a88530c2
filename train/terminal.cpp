#include <shardgrad/train/terminal.h>

#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
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
  while (true) {
    std::string line;
    for (const Field& field : fields) line += (line.empty() ? "" : "  ") + field.text;
    if (width_of(line) < columns || fields.empty()) return line;
    fields.erase(std::ranges::min_element(fields, {}, &Field::worth));
  }
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
