#include <shardgrad/train/terminal.h>

#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstring>

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

}  // namespace shardgrad::train
