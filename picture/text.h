#pragma once
// Text in pictures: how wide it will be, about, and how to say a number. No font is read: a picture is drawn before it
// is known where it will be looked at.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad::picture {

/// A letter of UTF-8 text, or one byte that is none.
struct Letter {
  char32_t code = 0;
  std::string_view bytes;
  bool valid = true;  ///< is UTF-8, and a letter that XML has
};
std::vector<Letter> letters(std::string_view text);

/// How wide the text is in a sans-serif font of this size, rather too much than too little.
double width_of(std::string_view text, double size = 14);
/// The text, or its beginning and its end with "…" between them, no wider than that.
std::string shortened(std::string_view text, double width, double size = 14);
/// Its words in lines that are no wider than that; a word that is too wide by itself is shortened.
std::vector<std::string> wrapped(std::string_view text, double width, double size = 14);

/// Names that stand one below the other: where one of them is wider than that, what all begin or end with, up to a '.',
/// is left out of all, and what is still too wide is shortened. "model.layers.17.mlp" among its like becomes "…17…".
std::vector<std::string> told_apart(std::vector<std::string> names, double width);

/// What numbers are of.
enum class Unit : uint8_t {
  plain,    ///< said as they are
  bytes,    ///< B, KiB, MiB, …
  seconds,  ///< ns, µs, ms, s, min, h
};

/// In what a number of this size is said: 5000000 bytes in {"MiB", 1048576}.
struct Measure {
  const char* name = "";
  double size = 1;
};
Measure measure_of(Unit unit, double largest);

/// With as many digits after the point as multiples of `step` need, no more than six; "2e-5" where that says too
/// little.
std::string said(double value, double step);
/// With three digits and its measure: "1.50 MiB", "12 B", "0", "3.20 ms", "0.887".
std::string said(double value, Unit unit);
/// 0.873 → "87 %"; 1 only for all of it, and 0 only for nothing.
std::string percent_of(double share);

}  // namespace shardgrad::picture
