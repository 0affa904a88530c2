#pragma once
// UTF-8, where bytes may be anything.

#include <cstddef>
#include <string>
#include <string_view>

namespace shardgrad::text {

/// What a text begins with.
struct Utf8Step {
  enum Kind {
    whole,   ///< a character of `length` bytes
    broken,  ///< `length` bytes that begin no character
    cut,     ///< the beginning of a character, whose rest is not there
  } kind;
  size_t length;
};
/// Of a text that is not empty. What is broken is as long as the Unicode standard recommends: what could begin a
/// character, and at least one byte.
Utf8Step utf8_step(std::string_view text);

/// How many of the first bytes are whole characters.
size_t valid_utf8(std::string_view text);

/// A text that comes in pieces, such as tokens, as whole characters. What can be none is shown as U+FFFD, as Python's
/// decode(errors="replace") does.
class Utf8Stream {
 public:
  /// The characters that are whole by now.
  std::string add(std::string_view bytes);
  /// The last one, if it never became whole.
  std::string finish();

 private:
  std::string held_;
};
/// A text that is there at once, as such a stream shows it.
std::string whole_characters(std::string_view bytes);

}  // namespace shardgrad::text
