#include <shardgrad/picture/svg.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/text.h>

namespace shardgrad::picture {

namespace {

struct Colour {
  const char *name, *light, *dark;
};
constexpr Colour kColours[] = {
    {"paper", "#ffffff", "#0d1117"}, {"text", "#1f2328", "#e6edf3"},  {"faint", "#59636e", "#9aa4af"},
    {"grid", "#d8dee4", "#30363d"},  {"blue", "#0072b2", "#4fa8e0"},  {"orange", "#e69f00", "#f0b429"},
    {"green", "#009e73", "#34c69a"}, {"red", "#d55e00", "#ff8a4c"},   {"pink", "#cc79a7", "#e39cc4"},
    {"sky", "#56b4e9", "#8fd0f5"},   {"olive", "#8c7a00", "#d6c53a"}, {"grey", "#8b949e", "#76818d"},
    {"label", "#0d1117", "#0d1117"},
};
constexpr const char* kFonts = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif";

const Colour& colour_of(Ink ink) { return kColours[size_t(ink)]; }

bool is_id(std::string_view id) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  auto inner = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_'; };
  return !id.empty() && letter(id[0]) && std::ranges::all_of(id, inner);
}

std::string attribute(const char* name, double value) { return concat(' ', name, "=\"", coordinate(value), '"'); }

std::string opaque(double opacity) { return opacity < 1 ? attribute("fill-opacity", opacity) : ""; }

std::string rule(const std::string& id, char kind, Ink ink, bool dark) {
  const Colour& colour = colour_of(ink);
  return concat('#', id, " .", kind, '-', colour.name, '{', kind == 'f' ? "fill" : "stroke", ":var(--sg-", colour.name,
                ',', dark ? colour.dark : colour.light, ")}");
}

}  // namespace

Ink ink_of(size_t i) { return Ink(size_t(Ink::blue) + i % kDataInks); }

std::string coordinate(double value) {
  SG_CHECK(std::isfinite(value) && std::abs(value) < 1e9, "picture: ", value, " is no coordinate");
  std::array<char, 32> digits;
  auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed, 2).ptr;
  while (end[-1] == '0') --end;
  if (end[-1] == '.') --end;
  std::string_view text(digits.data(), size_t(end - digits.data()));
  return std::string(text == "-0" ? "0" : text);
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (Letter letter : letters(text)) {
    if (!letter.valid) {
      safe += "\xEF\xBF\xBD";
      continue;
    }
    switch (letter.code) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += letter.bytes;
    }
  }
  return safe;
}

Svg::Svg(Caption caption, double width, double height) : caption_(std::move(caption)), width_(width), height_(height) {
  SG_CHECK(is_id(caption_.id), "picture: '", caption_.id,
           "' cannot be an id; it may have letters, digits, '-' and '_', and begins with a letter");
  rect(Ink::paper, {0, 0, width, height});
}

std::string Svg::fill(Ink ink) {
  fills_.insert(ink);
  return concat(" class=\"f-", colour_of(ink).name, "\" fill=\"", colour_of(ink).light, '"');
}

std::string Svg::stroke(Ink ink, LineStyle style) {
  strokes_.insert(ink);
  return concat(" class=\"s-", colour_of(ink).name, "\" stroke=\"", colour_of(ink).light, "\" fill=\"none\"",
                attribute("stroke-width", style.width),
                style.dashes ? concat(" stroke-dasharray=\"", style.dashes, '"') : "");
}

void Svg::close(const char* name, std::string_view tip) {
  body_ += tip.empty() ? "/>\n" : concat("><title>", escaped(tip), "</title></", name, ">\n");
}

void Svg::rect(Ink ink, const Box& box, std::string_view tip, double opacity) {
  if (!(box.width > 0 && box.height > 0)) return;
  body_ += concat("<rect", fill(ink), attribute("x", box.x), attribute("y", box.y), attribute("width", box.width),
                  attribute("height", box.height), opaque(opacity));
  close("rect", tip);
}

void Svg::line(Ink ink, Point from, Point to, LineStyle style) {
  body_ += concat("<line", stroke(ink, style), attribute("x1", from.x), attribute("y1", from.y), attribute("x2", to.x),
                  attribute("y2", to.y), "/>\n");
}

static std::string through(std::span<const Point> points) {
  std::string text;
  for (const Point& point : points)
    text += concat(text.empty() ? 'M' : 'L', coordinate(point.x), ' ', coordinate(point.y));
  return text;
}

void Svg::path(Ink ink, std::span<const Point> points, LineStyle style) {
  if (points.size() == 1) return dot(ink, points[0]);
  if (points.empty()) return;
  body_ += concat("<path", stroke(ink, style), " stroke-linejoin=\"round\" d=\"", through(points), "\"/>\n");
}

void Svg::area(Ink ink, std::span<const Point> outline, std::string_view tip, double opacity) {
  if (outline.empty()) return;
  body_ += concat("<path", fill(ink), " d=\"", through(outline), "Z\"", opaque(opacity));
  close("path", tip);
}

void Svg::dot(Ink ink, Point at, double radius) {
  body_ += concat("<circle", fill(ink), attribute("cx", at.x), attribute("cy", at.y), attribute("r", radius), "/>\n");
}

void Svg::text(Point at, std::string_view text, TextStyle style) {
  if (text.empty()) return;
  constexpr const char* anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  body_ += concat("<text", fill(style.ink), attribute("x", at.x), attribute("y", at.y), anchors[int(style.anchor)],
                  style.size == 14 ? "" : attribute("font-size", style.size), style.bold ? " font-weight=\"600\"" : "",
                  '>', escaped(text), "</text>\n");
}

void Svg::tell(std::string_view sentence) {
  if (!caption_.description.empty()) caption_.description += ' ';
  caption_.description += sentence;
}

std::string Svg::styles() const {
  std::string light, dark;
  for (auto [kind, inks] : {std::pair('f', &fills_), std::pair('s', &strokes_)})
    for (Ink ink : *inks) {
      light += rule(caption_.id, kind, ink, false) + "\n";
      dark += rule(caption_.id, kind, ink, true) + "\n";
    }
  return concat("<style>\n", light, "@media(prefers-color-scheme:dark){\n", dark, "}\n</style>\n");
}

std::string Svg::str() const {
  const std::string& id = caption_.id;
  std::string width = coordinate(width_), height = coordinate(height_);
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"", id, "\" role=\"img\" aria-labelledby=\"", id,
                "-title ", id, "-desc\" viewBox=\"0 0 ", width, ' ', height, "\" width=\"", width, "\" height=\"",
                height, "\" style=\"max-width:100%;height:auto\" font-family=\"", kFonts,
                "\" font-size=\"14\">\n<title id=\"", id, "-title\">", escaped(caption_.title), "</title>\n<desc id=\"",
                id, "-desc\">", escaped(caption_.description), "</desc>\n", styles(), body_, "</svg>\n");
}

}  // namespace shardgrad::picture
