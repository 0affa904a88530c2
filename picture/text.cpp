#include <shardgrad/picture/text.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include <shardgrad/core/error.h>

namespace shardgrad::picture {

namespace {

bool in_xml(char32_t code) {
  return code == '\t' || code == '\n' || code == '\r' || (code >= 0x20 && code <= 0xD7FF) ||
         (code >= 0xE000 && code <= 0xFFFD) || (code >= 0x10000 && code <= 0x10FFFF);
}

// Of the letter that `text` begins with; its first byte alone where that is none.
Letter first_letter(std::string_view text) {
  auto byte = [&](size_t i) { return char32_t(uint8_t(text[i])); };
  size_t length = byte(0) < 0x80 ? 1 : byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  Letter none{0, text.substr(0, 1), false};
  if (length > text.size() || (length > 1 && (byte(0) < 0xC0 || byte(0) > 0xF4))) return none;
  char32_t code = length == 1 ? byte(0) : byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return none;
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, text.substr(0, length), code >= least[length] && in_xml(code)};
}

// In ems.
double ems_of(const Letter& letter) {
  char32_t c = letter.code;
  if (!letter.valid) return 1;
  if (c >= 0x1100) return c >= 0x2000 && c < 0x2E80 ? 0.8 : 1;  // punctuation and arrows; Chinese and the like
  if (c < 0x80 && std::string_view("iljtfrI.,:;'|!()[] ").find(char(c)) != std::string_view::npos) return 0.38;
  if (c < 0x80 && std::string_view("mwMW@%").find(char(c)) != std::string_view::npos) return 0.95;
  return c >= 'A' && c <= 'Z' ? 0.7 : 0.61;
}

constexpr Measure kBytes[] = {{"B", 1},        {"KiB", 1024},   {"MiB", 0x1p20},
                              {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50}};
constexpr Measure kSeconds[] = {{"ns", 1e-9}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};
constexpr Measure kPlain[] = {{"", 1}};

std::string written(double value, std::chars_format format, int digits) {
  std::array<char, 400> text;  // 1e308 has 309 digits
  auto result = std::to_chars(text.data(), text.data() + text.size(), value, format, digits);
  return std::string(text.data(), result.ptr);
}

// 2.50e-05 → 2.5e-5
std::string scientific(double value, int digits) {
  std::string text = written(value, std::chars_format::scientific, digits);
  size_t e = text.find('e');
  std::string head = text.substr(0, e), tail = text.substr(e + 1);
  if (head.find('.') != std::string::npos) {
    head.erase(head.find_last_not_of('0') + 1);
    if (head.back() == '.') head.pop_back();
  }
  bool negative = tail[0] == '-';
  tail.erase(0, std::min(tail.find_first_not_of("+-0"), tail.size() - 1));
  return concat(head, 'e', negative ? "-" : "", tail);
}

}  // namespace

std::vector<Letter> letters(std::string_view text) {
  std::vector<Letter> all;
  for (; !text.empty(); text.remove_prefix(all.back().bytes.size())) all.push_back(first_letter(text));
  return all;
}

double width_of(std::string_view text, double size) {
  double ems = 0;
  for (const Letter& letter : letters(text)) ems += ems_of(letter);
  return ems * size;
}

std::string shortened(std::string_view text, double width, double size) {
  if (width_of(text, size) <= width) return std::string(text);
  std::vector<Letter> all = letters(text);
  double left = width / size - 0.8;
  size_t head = 0, tail = all.size();  // letters from both ends in turn
  for (bool front = true; head < tail; front = !front) {
    left -= ems_of(front ? all[head] : all[tail - 1]);
    if (left < 0) break;
    front ? ++head : --tail;
  }
  std::string kept;
  for (size_t i = 0; i < head; ++i) kept += all[i].bytes;
  kept += "…";
  for (size_t i = tail; i < all.size(); ++i) kept += all[i].bytes;
  return kept;
}

// How many bytes at the beginning all have, up to and with the last '.' of these.
static size_t shared_beginning(const std::vector<std::string>& names) {
  std::string_view shared = names[0];
  for (std::string_view name : names) {
    auto differs = std::ranges::mismatch(shared, name).in1;
    shared = shared.substr(0, size_t(differs - shared.begin()));
  }
  return shared.rfind('.') + 1;  // npos + 1 is 0
}

std::vector<std::string> wrapped(std::string_view text, double width, double size) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t at = 0; at < text.size();) {
    size_t space = std::min(text.find(' ', at), text.size());
    std::string word = shortened(text.substr(at, space - at), width, size);
    at = space + 1;
    if (!line.empty() && width_of(line + " " + word, size) > width) lines.push_back(std::exchange(line, ""));
    line += line.empty() ? word : " " + word;
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

std::vector<std::string> told_apart(std::vector<std::string> names, double width) {
  auto fits = [&](const std::string& name) { return width_of(name) <= width; };
  if (names.size() < 2 || std::ranges::all_of(names, fits)) {
    for (std::string& name : names) name = shortened(name, width);
    return names;
  }
  std::vector<std::string> turned = names;
  for (std::string& name : turned) std::ranges::reverse(name);
  size_t head = shared_beginning(names), tail = shared_beginning(turned);
  for (std::string& name : names) {
    bool all_of_it = head + tail >= name.size();
    std::string kept = all_of_it ? name.substr(head) : name.substr(head, name.size() - head - tail);
    name = shortened(concat(head ? "…" : "", kept, tail && !all_of_it ? "…" : ""), width);
  }
  return names;
}

Measure measure_of(Unit unit, double largest) {
  std::span<const Measure> of = unit == Unit::bytes     ? std::span<const Measure>(kBytes)
                                : unit == Unit::seconds ? std::span<const Measure>(kSeconds)
                                                        : std::span<const Measure>(kPlain);
  Measure chosen = of[0];
  for (const Measure& each : of)
    if (std::abs(largest) >= each.size * (each.size > 1 && unit == Unit::seconds ? 2 : 1)) chosen = each;
  return chosen;
}

std::string said(double value, double step) {
  double size = std::max(std::abs(value), std::abs(step));
  if (value == 0) return "0";
  int digits = std::max(0, -int(std::floor(std::log10(std::abs(step)) + 1e-9)));
  if (size >= 1e6 || digits > 4) {
    int more = int(std::floor(std::log10(std::abs(value)))) - int(std::floor(std::log10(std::abs(step)) + 1e-9));
    return scientific(value, std::clamp(more, 0, 6));
  }
  std::string text = written(value, std::chars_format::fixed, digits);
  return text.find_first_not_of("-0.") == std::string::npos ? "0" : text;
}

std::string said(double value, Unit unit) {
  if (!std::isfinite(value)) return "not finite";
  if (value == 0) return "0";
  Measure measure = measure_of(unit, value);
  double scaled = value / measure.size, size = std::abs(scaled);
  bool whole = scaled == std::floor(scaled) && (unit != Unit::bytes || measure.size == 1);
  std::string text = size >= 1e6 || size < 1e-3 ? scientific(scaled, 2)
                     : whole                    ? written(scaled, std::chars_format::fixed, 0)
                                                : written(scaled, std::chars_format::fixed,
                                       size >= 100  ? 0
                                                          : size >= 10 ? 1
                                                          : size >= 1  ? 2
                                                                       : 3);
  return *measure.name ? concat(text, ' ', measure.name) : text;
}

std::string percent_of(double share) {
  double percent = std::round(share * 100);
  if (share > 0 && percent < 1) return "less than 1 %";
  if (share < 1 && percent > 99) return "more than 99 %";
  return concat(written(percent, std::chars_format::fixed, 0), " %");
}

}  // namespace shardgrad::picture
