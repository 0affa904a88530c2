#include <shardgrad/picture/span_bars.h>

#include <algorithm>

#include <shardgrad/core/error.h>

namespace shardgrad::picture {

static constexpr double kSeen = 1;  // narrower bars are made so wide
static constexpr double kNameSize = 12;

std::vector<SpanBar> merged(std::vector<SpanBar> bars, const Axis& time) {
  std::ranges::stable_sort(
      bars, [](const SpanBar& a, const SpanBar& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  std::vector<SpanBar> kept;
  auto narrow = [&](const SpanBar& bar) { return time.place(bar.end) - time.place(bar.begin) < kSeen; };
  for (SpanBar& bar : bars) {
    bool joins = !kept.empty() && kept.back().ink == bar.ink && narrow(bar) &&
                 time.place(bar.begin) - time.place(kept.back().begin) < kSeen;
    if (!joins) {
      kept.push_back(std::move(bar));
      continue;
    }
    kept.back().end = std::max(kept.back().end, bar.end);
    kept.back().count += bar.count;
  }
  return kept;
}

void draw_bars(Svg& svg, std::vector<SpanBar> bars, const Axis& time, double y, double height) {
  std::vector<SpanBar> all = merged(std::move(bars), time);
  for (size_t i = 0; i < all.size(); ++i) {
    const SpanBar& bar = all[i];
    bool is_free = bar.count == 1 && (i + 1 == all.size() || all[i + 1].begin >= bar.end);  // nothing is drawn on it
    double x = time.place(bar.begin), width = std::max(kSeen, time.place(bar.end) - x);
    std::string more = bar.count > 1 ? concat(" and ", std::to_string(bar.count - 1), " more") : "";
    svg.rect(bar.ink, {x, y, width, height}, bar.tip.empty() ? "" : bar.tip + more);
    if (is_free && width > width_of(bar.name, kNameSize) + 6)
      svg.text({x + width / 2, y + height / 2 + 4}, bar.name, {Anchor::middle, Ink::label, kNameSize});
    if (width > 3) svg.rect(Ink::paper, {x + width - 0.75, y, 0.75, height});  // neighbours stay apart
  }
}

}  // namespace shardgrad::picture
