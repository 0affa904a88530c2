#include <shardgrad/train/text/utf8.h>

#include <cstdint>
#include <cstring>

namespace shardgrad::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Lead {
  size_t length;                    // of the character; 0: no character begins so
  uint8_t low = 0x80, high = 0xBF;  // of its second byte, so that none is too long, a surrogate or above U+10FFFF
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  Lead lead = lead_of(uint8_t(text[0]));
  if (lead.length == 0) return {Utf8Step::broken, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Step::cut, i};
    auto byte = uint8_t(text[i]);
    bool follows = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!follows) return {Utf8Step::broken, i};
  }
  return {Utf8Step::whole, lead.length};
}

size_t valid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::whole) break;
    at += step.length;
  }
  return at;
}

std::string Utf8Stream::add(std::string_view bytes) {
  held_ += bytes;
  std::string characters;
  std::string_view rest = held_;
  while (!rest.empty()) {
    size_t valid = valid_utf8(rest);
    characters += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::cut) break;
    characters += kReplacement;
    rest.remove_prefix(step.length);
  }
  held_ = std::string(rest);
  return characters;
}

std::string Utf8Stream::finish() {
  std::string last(held_.empty() ? "" : kReplacement);
  held_.clear();
  return last;
}

std::string whole_characters(std::string_view bytes) {
  Utf8Stream stream;
  std::string characters = stream.add(bytes);
  return characters + stream.finish();
}

}  // namespace shardgrad::text
