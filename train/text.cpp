#include <shardgrad/train/text.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <ctime>

namespace shardgrad::train {

std::string format(const char* pattern, ...) {
  char text[400];
  va_list values;
  va_start(values, pattern);
  std::vsnprintf(text, sizeof text, pattern, values);
  va_end(values);
  return text;
}

std::string format_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return format_fixed(value, unit > 0) + " " + units[unit];
}

std::string format_seconds(double seconds) {
  auto whole = int64_t(std::lround(std::max(0.0, seconds)));
  if (whole < 60) return format("%lds", long(whole));
  if (whole < 3600) return format("%ldm%02lds", long(whole / 60), long(whole % 60));
  return format("%ldh%02ldm", long(whole / 3600), long(whole / 60 % 60));
}

std::string format_fixed(double value, int digits) { return std::isnan(value) ? "NaN" : format("%.*f", digits, value); }

std::string format_shortest(float value) {
  char text[32];
  return std::isnan(value) ? "NaN" : std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

std::string printable(const std::string& text) {
  std::string safe;
  for (char c : text)
    safe += uint8_t(c) >= ' ' && c != '\x7f' ? std::string(1, c) : format("\\x%02x", unsigned(uint8_t(c)));
  return safe;
}

std::string date_of_now() {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&now, &parts)) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace shardgrad::train
