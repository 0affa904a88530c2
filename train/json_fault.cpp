#include <shardgrad/train/json_fault.h>

#include <algorithm>

#include <shardgrad/train/files.h>

namespace shardgrad::train {

// "… syntax error while parsing value - invalid literal; last read: 'x'; expected ']'"
static std::string in_words(const std::string& message) {
  constexpr std::string_view kRead = "; last read: ", kExpected = "; expected ";
  size_t begin = message.find(" - ");
  if (begin == std::string::npos) return message.substr(std::min(message.find(' ') + 1, message.size()));
  std::string why = message.substr(begin + 3), expected;
  size_t read = why.find(kRead), wish = why.rfind(kExpected);
  if (wish != std::string::npos && (read == std::string::npos || wish > read)) {
    expected = why.substr(wish);
    why.resize(wish);
  }
  if (read != std::string::npos) why = why.substr(0, read) + " at " + shortened(why.substr(read + kRead.size()));
  if (expected.ends_with("'[', '{', or a literal")) expected = "; expected a value";
  if (expected.ends_with("string literal")) expected = "; expected a text in double quotes";
  return why + expected;
}

JsonFault json_fault(std::string_view text, size_t byte, const std::string& message) {
  std::string_view before = text.substr(0, std::min(byte > 0 ? byte - 1 : 0, text.size()));
  size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  auto is_character = [](char c) { return (uint8_t(c) & 0xC0) != 0x80; };
  return {1 + std::ranges::count(before, '\n'), 1 + std::ranges::count_if(before.substr(begin), is_character),
          in_words(message)};
}

}  // namespace shardgrad::train
