#pragma once
// One picture as SVG text: the same text for the same calls, whatever the locale. It can stand in a file of its own,
// and several times in one HTML page: every id begins with the caption's, and every style is of that id alone.
//
// An ink is a role, not a colour. Each mark has its class and, for programs that know no CSS variables, its light
// colour:
//
//     <rect class="f-blue" fill="#0072b2" …/>
//     #loss .f-blue{fill:var(--sg-blue,#0072b2)}  @media(prefers-color-scheme:dark){#loss
//     .f-blue{fill:var(--sg-blue,#4fa8e0)}}
//
// so a page that has a switch of its own sets --sg-blue. Colours are those of Okabe and Ito, which the colour-blind
// tell apart, lighter on dark paper.

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace shardgrad::picture {

enum class Ink : uint8_t {
  paper,
  text,
  faint,  ///< ticks and what is said beside
  grid,
  blue,
  orange,
  green,
  red,
  pink,
  sky,
  olive,
  grey,
  label,  ///< words on a colour for data
};
/// The i-th of the eight colours for data, from the start again after the last.
Ink ink_of(size_t i);
inline constexpr size_t kDataInks = 8;

/// What a picture is called.
struct Caption {
  std::string id = "picture";  ///< letters, digits, '-' and '_', a letter first; another one for each picture of a page
  std::string title;           ///< in the picture, and what it is called where it is read out
  std::string description;     ///< for who cannot see it; what the picture itself has to say comes after it
};

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

enum class Anchor : uint8_t { start, middle, end };

/// How a text stands: `at` is on its baseline.
struct TextStyle {
  Anchor anchor = Anchor::start;
  Ink ink = Ink::text;
  double size = 14;
  bool bold = false;
};

struct LineStyle {
  double width = 1;
  const char* dashes = nullptr;  ///< of SVG's stroke-dasharray
};

class Svg {
 public:
  /// Throws Error(input) for a caption's id that is none.
  Svg(Caption caption, double width, double height);
  /// `tip` is shown where a pointer rests on the box. A box without area is left out.
  void rect(Ink ink, const Box& box, std::string_view tip = {}, double opacity = 1);
  void line(Ink ink, Point from, Point to, LineStyle style = {});
  /// A line through all points; a single one is a dot.
  void path(Ink ink, std::span<const Point> points, LineStyle style = {2, nullptr});
  void area(Ink ink, std::span<const Point> outline, std::string_view tip = {}, double opacity = 1);
  void dot(Ink ink, Point at, double radius = 2.5);
  void text(Point at, std::string_view text, TextStyle style = {});
  /// Adds a sentence to the description.
  void tell(std::string_view sentence);
  /// The whole picture.
  std::string str() const;

 private:
  std::string fill(Ink ink);
  std::string stroke(Ink ink, LineStyle style);
  void close(const char* name, std::string_view tip);
  std::string styles() const;
  Caption caption_;
  double width_, height_;
  std::string body_;
  std::set<Ink> fills_, strokes_;
};

/// A coordinate: at most two digits after the point, "." whatever the locale, no "-0".
std::string coordinate(double value);
/// For text and attributes of XML: what XML has no place for, such as control characters and broken UTF-8, becomes
/// U+FFFD.
std::string escaped(std::string_view text);

}  // namespace shardgrad::picture
