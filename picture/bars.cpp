#include <shardgrad/picture/bars.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/frame.h>

namespace shardgrad::picture {

namespace {

constexpr double kPairHeight = 38, kBar = 9;
constexpr size_t kMostPairs = 40;

bool equal(const Pair& pair) { return pair.measured == pair.formula; }
double difference(const Pair& pair) { return std::abs(pair.measured - pair.formula); }

std::string pair_in_words(const Pair& pair, Unit unit) {
  if (!std::isfinite(pair.measured) || !std::isfinite(pair.formula)) return "not finite";
  if (equal(pair)) return concat("== ", said(pair.formula, unit));
  return concat(said(difference(pair), unit), pair.measured > pair.formula ? " more" : " less");
}

std::string all_in_words(const Bars& bars, size_t drawn) {
  auto differ = size_t(std::ranges::count_if(bars.pairs, [](const Pair& pair) { return !equal(pair); }));
  std::string count = std::to_string(bars.pairs.size());
  std::string text = differ == 0
                         ? concat("All ", count, " are equal.")
                         : concat(std::to_string(differ), " of ", count, differ == 1 ? " differs." : " differ.");
  if (drawn < bars.pairs.size()) text += concat(" The ", std::to_string(drawn), " that differ most are drawn.");
  return text;
}

// In their own order where all have room.
std::vector<Pair> to_draw(const Bars& bars) {
  for (const Pair& pair : bars.pairs)
    SG_CHECK(!(pair.measured < 0 || pair.formula < 0), "picture: a bar of '", pair.name,
             "' is negative: ", pair.measured, " beside ", pair.formula);
  std::vector<Pair> pairs = bars.pairs;
  if (pairs.size() <= kMostPairs) return pairs;
  std::ranges::stable_sort(pairs, std::greater(), difference);
  pairs.resize(kMostPairs);
  return pairs;
}

void draw_pair(Svg& svg, const Pair& pair, const std::string& name, const Bars& bars, const Plot& plot, double y) {
  auto bar = [&](double value, Ink ink, const std::string& what, double top) {
    double width = plot.x.place(value) - plot.box.x;
    svg.rect(ink, {plot.box.x, top, width, kBar}, concat(pair.name, ", ", what, ": ", said(value, bars.unit)));
  };
  svg.text({plot.box.x - 8, y + kBar + 6}, name, {.anchor = Anchor::end});
  bar(pair.measured, Ink::blue, bars.measured, y);
  bar(pair.formula, Ink::orange, bars.formula, y + kBar + 1);
  double end = plot.box.x + plot.box.width + 10;
  svg.text({end, y + kBar + 6}, pair_in_words(pair, bars.unit),
           {.ink = equal(pair) ? Ink::faint : Ink::text, .bold = !equal(pair)});
}

}  // namespace

std::string draw(const Bars& bars) {
  std::vector<Pair> pairs = to_draw(bars);
  Head head(bars.caption, pairs.empty() ? "" : all_in_words(bars, pairs.size()),
            {{Ink::blue, bars.measured}, {Ink::orange, bars.formula}});
  double names = 0, words = 0, top = head.bottom(), height = pairs.empty() ? 60 : kPairHeight * double(pairs.size());
  Range range;
  std::vector<std::string> short_names;
  for (const Pair& pair : pairs) short_names.push_back(pair.name);
  short_names = told_apart(std::move(short_names), 140);
  for (const std::string& name : short_names) names = std::max(names, width_of(name));
  for (const Pair& pair : pairs) {
    words = std::max(words, width_of(pair_in_words(pair, bars.unit), 15));
    range.add(pair.measured), range.add(pair.formula);
  }
  double left = kMargin + names + 10, right = kWidth - kMargin - words - 10;
  Svg svg(bars.caption, kWidth, top + height + kBelow);
  head.draw(svg);
  Plot plot{{left, top, right - left, height}, {}, {}};
  if (pairs.empty()) {
    say_empty(svg, plot.box, "there is nothing to compare");
    return svg.str();
  }
  plot.x = linear_axis(range, {left, right}, {.unit = bars.unit, .from_zero = true, .most = 4});
  draw_axes(svg, plot, "", "");
  for (size_t i = 0; i < pairs.size(); ++i) {
    draw_pair(svg, pairs[i], short_names[i], bars, plot, top + 6 + kPairHeight * double(i));
    svg.tell(concat(pairs[i].name, ": ", pair_in_words(pairs[i], bars.unit), "."));
  }
  return svg.str();
}

}  // namespace shardgrad::picture
