#include <shardgrad/train/cli/speed_text.h>

#include <cmath>
#include <iomanip>

namespace shardgrad::cli {
std::string amount(double value, const char* unit) {
  constexpr std::pair<double, const char*> prefixes[] = {{1e12, "T"}, {1e9, "G"},  {1e6, "M"}, {1e3, "k"},
                                                         {1, ""},     {1e-3, "m"}, {1e-6, "u"}};
  auto [scale, prefix] = std::pair(1e-9, "n");
  for (auto [larger, name] : prefixes)
    if (value >= larger) {
      std::tie(scale, prefix) = std::pair(larger, name);
      break;
    }
  double scaled = value / scale;
  std::ostringstream out;
  out << std::fixed << std::setprecision(scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2) << scaled << ' ' << prefix << unit;
  return out.str();
}

namespace {

std::string line(const char* label, double seconds, const std::string& remark = "") {
  std::ostringstream out;
  out << "      " << std::left << std::setw(12) << label << std::right << std::setw(8) << amount(seconds, "s");
  if (!remark.empty()) out << "   " << remark;
  out << '\n';
  return out.str();
}

std::string times_as_long(double seconds, double built_in) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << seconds / built_in;
  return out.str();
}

std::string text_of(const Speed& speed) {
  std::string moved = concat(amount(speed.bytes, "B"), " at least, ", amount(speed.bytes / speed.forward, "B/s"));
  if (speed.flops > 0)
    moved += concat("; ", amount(speed.flops, "FLOP"), ", ", amount(speed.flops / speed.forward, "FLOP/s"));
  std::string roof = speed.limited_by_arithmetic()
                         ? concat("the library's own product, ", amount(speed.peak, "FLOP/s"))
                         : concat("a copy of as many bytes, ", amount(speed.bytes / speed.copy, "B/s"));
  std::string text = concat("    ", speed.dtype, " ", speed.shapes, ", medians of ", speed.calls, " calls\n",
                            line("forward", speed.forward, moved), line("roof", speed.roof(), roof),
                            "      reached     ", std::lround(100 * speed.roof() / speed.forward), " % of the roof\n");
  if (speed.backward > 0) text += line("backward", speed.backward);
  if (speed.built_in_forward > 0)
    text += line(
        "built-in", speed.built_in_forward,
        concat("forward; this one takes ", times_as_long(speed.forward, speed.built_in_forward), " times as long"));
  if (speed.built_in_backward > 0)
    text += line(
        "built-in", speed.built_in_backward,
        concat("backward; this one takes ", times_as_long(speed.backward, speed.built_in_backward), " times as long"));
  return text;
}

}  // namespace

std::string speed_text(const SpeedReport& report) {
  if (!report.wrong.empty()) return concat("  large         FAILS: ", report.wrong, "\n");
  if (!report.why_not.empty()) return concat("  speed         not measured: ", report.why_not, "\n");
  std::string text = "  speed         with cold caches\n";
  for (const Speed& speed : report.speeds) text += text_of(speed);
  return text;
}

}  // namespace shardgrad::cli
