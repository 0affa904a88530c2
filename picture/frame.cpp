#include <shardgrad/picture/frame.h>

#include <algorithm>

#include <shardgrad/core/error.h>

namespace shardgrad::picture {

namespace {

constexpr double kTitleSize = 17, kLine = 20, kSwatch = 12, kInner = kWidth - 2 * kMargin;

}  // namespace

Head::Head(const Caption& caption, std::string words, std::vector<Key> keys)
    : title_(shortened(caption.title, kInner * 0.93, kTitleSize)),
      lines_(wrapped(words, kInner)),
      words_(std::move(words)) {
  bottom_ = kMargin + (title_.empty() ? 0 : 20) + kLine * double(lines_.size());
  double x = kMargin;
  if (!keys.empty()) bottom_ += kLine;
  for (Key& key : keys) {
    key.name = shortened(key.name, 240);
    double width = kSwatch + 6 + width_of(key.name) + 16;
    if (x > kMargin && x + width > kWidth) x = kMargin, bottom_ += kLine;
    keys_.push_back({std::move(key), {x, bottom_ - 4}});
    x += width;
  }
  bottom_ += 8;
}

void Head::draw(Svg& svg) const {
  double y = kMargin + (title_.empty() ? 0 : 14);
  if (!title_.empty()) svg.text({kMargin, y}, title_, {.size = kTitleSize, .bold = true});
  for (const std::string& line : lines_) svg.text({kMargin, y += kLine}, line, {.ink = Ink::faint});
  for (const auto& [key, at] : keys_) {
    double middle = at.y - 5;
    if (key.line)
      svg.line(key.ink, {at.x - 2, middle}, {at.x + kSwatch + 2, middle}, {2.5, key.dashes});
    else
      svg.rect(key.ink, {at.x, middle - kSwatch / 2, kSwatch, kSwatch});
    svg.text({at.x + kSwatch + 6, at.y}, key.name);
  }
  if (!words_.empty()) svg.tell(words_);
}

double room_for(const Axis& axis) {
  double widest = 0;
  for (const Tick& tick : axis.ticks) widest = std::max(widest, width_of(tick.text));
  return widest + 8;
}

void draw_axes(Svg& svg, const Plot& plot, const std::string& x_name, const std::string& y_name) {
  const Box& box = plot.box;
  double bottom = box.y + box.height, right = box.x + box.width;
  for (const Tick& tick : plot.y.ticks) {
    double y = plot.y.place(tick.value);
    svg.line(Ink::grid, {box.x, y}, {right, y});
    svg.text({box.x - 6, y + 5}, tick.text, {.anchor = Anchor::end, .ink = Ink::faint});
  }
  svg.line(Ink::faint, {box.x, bottom}, {right, bottom});
  auto with_unit = [](const std::string& name, const std::string& unit) {
    return unit.empty() ? name : name.empty() ? unit : concat(name, ", ", unit);
  };
  std::string name = with_unit(x_name, plot.x.unit);
  double free_from = 0;  // texts do not touch each other
  for (const Tick& tick : plot.x.ticks) {
    double x = plot.x.place(tick.value), half = width_of(tick.text) / 2;
    svg.line(Ink::faint, {x, bottom}, {x, bottom + 4});
    double centre = std::clamp(x, kMargin / 2 + half, kWidth - kMargin / 2 - half);
    if (centre - half < free_from) continue;
    svg.text({centre, bottom + 18}, tick.text, {.anchor = Anchor::middle, .ink = Ink::faint});
    free_from = centre + half + 10;
  }
  svg.text({right, bottom + 36}, name, {.anchor = Anchor::end, .ink = Ink::faint});
  svg.text({kMargin, box.y - 12}, shortened(with_unit(y_name, plot.y.unit), kInner), {.ink = Ink::faint});
}

void say_empty(Svg& svg, const Box& box, const std::string& why) {
  svg.text({box.x + box.width / 2, box.y + box.height / 2}, why, {.anchor = Anchor::middle, .ink = Ink::faint});
  svg.tell(why + ".");
}

void draw_marks(Svg& svg, const Plot& plot, std::span<const Mark> marks) {
  double right = plot.box.x + plot.box.width;
  for (size_t i = 0; i < marks.size(); ++i) {
    double x = plot.x.place(marks[i].at), next = i + 1 < marks.size() ? plot.x.place(marks[i + 1].at) : right;
    svg.line(Ink::faint, {x, plot.box.y}, {x, plot.box.y + plot.box.height}, {1, "2 3"});
    if (next - x > width_of(marks[i].name) + 6) svg.text({x + 4, plot.box.y + 14}, marks[i].name, {.ink = Ink::faint});
  }
}

}  // namespace shardgrad::picture
