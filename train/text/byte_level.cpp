#include <shardgrad/train/text/byte_level.h>

#include <array>
#include <cstdint>

#include <shardgrad/train/text/utf8.h>

namespace shardgrad::text {
namespace {

struct Alphabet {
  std::array<uint16_t, 256> letters{};  // code points, below 0x144
  std::array<int16_t, 0x144> bytes{};   // of each code point; -1: no letter
};

constexpr bool is_its_own_letter(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.bytes) byte = -1;
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    uint16_t letter = is_its_own_letter(byte) ? uint16_t(byte) : next++;
    alphabet.letters[size_t(byte)] = letter;
    alphabet.bytes[letter] = int16_t(byte);
  }
  return alphabet;
}();

}  // namespace

std::string to_letters(std::string_view bytes) {
  std::string text;
  for (char byte : bytes) {
    uint16_t letter = kAlphabet.letters[uint8_t(byte)];
    if (letter >= 0x80) text += char(0xC0 | letter >> 6);
    text += letter < 0x80 ? char(letter) : char(0x80 | (letter & 0x3F));
  }
  return text;
}

std::optional<std::string> from_letters(std::string_view letters) {
  std::string bytes;
  while (!letters.empty()) {
    Utf8Step step = utf8_step(letters);
    if (step.kind != Utf8Step::whole || step.length > 2) return {};
    size_t code = uint8_t(letters[0]);
    if (step.length == 2) code = (code & 0x1F) << 6 | (uint8_t(letters[1]) & 0x3F);
    if (code >= kAlphabet.bytes.size() || kAlphabet.bytes[code] < 0) return {};
    bytes += char(kAlphabet.bytes[code]);
    letters.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace shardgrad::text
