#include <shardgrad/picture/memory.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/thin.h>

namespace shardgrad::picture {

namespace {

constexpr double kMemoryHeight = 260;
constexpr size_t kMemoryColumns = 200, kMostCases = 7;
using Owner = BytesOverTime::Owner;

// The library's own owners have the same colours in all pictures.
constexpr const char* kOwners[] = {"optimizer_state", "parameter_shard",    "activation",         "full_gradient",
                                   "gradient_shard",  "gathered_parameter", "activation_gradient"};

// Others take those that are left.
std::vector<Ink> inks_of(const std::vector<Owner>& owners) {
  auto place = [](const Owner& owner) { return size_t(std::ranges::find(kOwners, owner.name) - kOwners); };
  bool taken[kDataInks] = {};
  for (const Owner& owner : owners)
    if (place(owner) < std::size(kOwners)) taken[place(owner)] = true;
  std::vector<Ink> inks;
  size_t free = 0;
  for (const Owner& owner : owners) {
    bool known = place(owner) < std::size(kOwners);
    while (!known && taken[free]) ++free;
    inks.push_back(ink_of(known ? place(owner) : free++));
  }
  return inks;
}

void check_bytes(const BytesOverTime& bytes) {
  for (const Owner& owner : bytes.owners)
    SG_CHECK(owner.bytes.size() == bytes.moments.size(), "picture: '", owner.name, "' has ", owner.bytes.size(),
             " numbers of bytes for ", bytes.moments.size(), " moments");
  for (size_t i = 0; i < bytes.moments.size(); ++i)
    SG_CHECK(std::isfinite(bytes.moments[i]) && (i == 0 || bytes.moments[i - 1] <= bytes.moments[i]),
             "picture: the moments of bytes are not in order at ", bytes.moments[i]);
}

std::vector<int64_t> total_of(const BytesOverTime& bytes) {
  std::vector<int64_t> total(bytes.moments.size());
  for (const Owner& owner : bytes.owners)
    for (size_t i = 0; i < total.size(); ++i) total[i] += owner.bytes[i];
  return total;
}

int64_t most_of(const std::vector<int64_t>& bytes) { return bytes.empty() ? 0 : std::ranges::max(bytes); }
int64_t least_of(const std::vector<int64_t>& bytes) { return bytes.empty() ? 0 : std::ranges::min(bytes); }

// What stands in the picture, from the bottom up.
std::vector<Owner> stacked(std::vector<Owner> owners) {
  std::erase_if(owners, [](const Owner& owner) { return most_of(owner.bytes) <= 0; });
  std::ranges::stable_sort(owners, std::greater(), [](const Owner& owner) { return most_of(owner.bytes); });
  if (owners.size() > kDataInks) {
    Owner rest{concat(std::to_string(owners.size() - kDataInks + 1), " others"), {}};
    rest.bytes.resize(owners[0].bytes.size());
    for (size_t i = kDataInks - 1; i < owners.size(); ++i)
      for (size_t k = 0; k < rest.bytes.size(); ++k) rest.bytes[k] += owners[i].bytes[k];
    owners.resize(kDataInks - 1);
    owners.push_back(std::move(rest));
  }
  std::ranges::stable_sort(owners, std::greater(), [](const Owner& owner) { return least_of(owner.bytes); });
  return owners;
}

std::vector<size_t> moments_to_draw(const BytesOverTime& bytes, const std::vector<int64_t>& total) {
  std::vector<Point> points;
  for (size_t i = 0; i < total.size(); ++i) points.push_back({bytes.moments[i], double(total[i])});
  return kept_of(points, kMemoryColumns);
}

// Stairs, of which level neighbours are one step.
void add_stairs(std::vector<Point>& points, const Plot& plot, const std::vector<double>& x,
                const std::vector<int64_t>& bytes) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (i > 0 && bytes[i] == bytes[i - 1]) continue;
    double y = plot.y.place(double(bytes[i]));
    if (i > 0) points.push_back({x[i], points.back().y});
    points.push_back({x[i], y});
  }
  if (!points.empty()) points.push_back({plot.box.x + plot.box.width, points.back().y});
}

// The stairs of `top` from left to right, then those of `base` back again.
std::vector<Point> outline(const Plot& plot, const std::vector<double>& x, const std::vector<int64_t>& base,
                           const std::vector<int64_t>& top) {
  std::vector<Point> points, back;
  add_stairs(points, plot, x, top);
  add_stairs(back, plot, x, base);
  points.insert(points.end(), back.rbegin(), back.rend());
  return points;
}

void draw_stack(Svg& svg, const Plot& plot, const BytesOverTime& bytes, const std::vector<Owner>& owners,
                const std::vector<Ink>& inks) {
  std::vector<size_t> kept = moments_to_draw(bytes, total_of(bytes));
  std::vector<double> x;
  for (size_t i : kept) x.push_back(plot.x.place(bytes.moments[i]));
  std::vector<int64_t> base(kept.size()), top(kept.size());
  for (size_t k = 0; k < owners.size(); ++k) {
    for (size_t i = 0; i < kept.size(); ++i) top[i] = base[i] + std::max<int64_t>(0, owners[k].bytes[kept[i]]);
    std::string tip = concat(owners[k].name, ", at most ", said(double(most_of(owners[k].bytes)), Unit::bytes));
    svg.area(inks[k], outline(plot, x, base, top), tip);
    base = top;
  }
}

std::string peak_in_words(const Memory& memory, int64_t peak) {
  std::string text = concat("Peak ", said(double(peak), Unit::bytes));
  if (!memory.predicted) return text + ".";
  int64_t more = peak - *memory.predicted;
  if (more == 0) return text + " == predicted, to the byte.";
  return concat(text, ", ", said(std::abs(double(more)), Unit::bytes), more > 0 ? " above" : " below",
                " the predicted ", said(double(*memory.predicted), Unit::bytes), ".");
}

Axis axis_of_moments(const Memory& memory, double left) {
  Range range;
  for (double moment : memory.bytes.moments) range.add(moment);
  AxisOptions options{.between_ticks = false};
  if (memory.by_order) range.add(range.empty() ? 1 : range.high() + 1), options.whole = true;  // the last one has room
  if (!memory.by_order) options.unit = Unit::seconds;
  return linear_axis(range, {left, kWidth - kMargin}, options);
}

void draw_prediction(Svg& svg, const Plot& plot, int64_t predicted) {
  double y = plot.y.place(double(predicted));
  svg.line(Ink::text, {plot.box.x, y}, {plot.box.x + plot.box.width, y}, {1.5, "6 4"});
  svg.text({plot.box.x + plot.box.width, y - 6}, "predicted peak", {.anchor = Anchor::end});
}

}  // namespace

BytesOverTime bytes_over_time(const std::map<Category::Kind, int64_t>& before, std::vector<LedgerChange> changes,
                              bool by_order) {
  std::map<Category::Kind, int64_t> now = before;
  for (const LedgerChange& change : changes) now.try_emplace(change.tag.category, 0);
  if (!by_order) std::ranges::stable_sort(changes, {}, &LedgerChange::at);  // threads note them as they come
  BytesOverTime found;
  for (const auto& [category, bytes] : now) found.owners.push_back({name_of(category), {}});
  auto note = [&](double moment) {
    found.moments.push_back(moment);
    size_t i = 0;
    for (const auto& [category, bytes] : now) found.owners[i++].bytes.push_back(bytes);
  };
  if (!now.empty()) note(changes.empty() || by_order ? 0 : changes[0].at);
  for (size_t i = 0; i < changes.size(); ++i) {
    now[changes[i].tag.category] += changes[i].bytes;
    note(by_order ? double(i + 1) : changes[i].at);
  }
  return found;
}

// Seconds since the first moment.
static Memory from_zero(Memory memory) {
  if (memory.by_order || memory.bytes.moments.empty()) return memory;
  double first = memory.bytes.moments[0];
  for (double& moment : memory.bytes.moments) moment -= first;
  for (Mark& mark : memory.marks) mark.at -= first;
  return memory;
}

std::string draw(const Memory& given) {
  check_bytes(given.bytes);
  Memory memory = from_zero(given);
  std::vector<Owner> owners = stacked(memory.bytes.owners);
  std::vector<Key> keys;
  std::vector<Ink> inks = inks_of(owners);
  for (size_t k = 0; k < owners.size(); ++k) keys.push_back({inks[k], owners[k].name});
  int64_t peak = most_of(total_of(memory.bytes));
  Head head(memory.caption, owners.empty() ? "" : peak_in_words(memory, peak), keys);
  double top = head.bottom() + 26, bottom = top + kMemoryHeight;
  Svg svg(memory.caption, kWidth, bottom + kBelow);
  head.draw(svg);
  Range range;
  range.add(double(peak) * (memory.marks.empty() ? 1 : 1.1));  // their names stand above it
  range.add(double(memory.predicted.value_or(0)) * 1.05);
  range.add(double(memory.room));
  Axis y = linear_axis(range, {bottom, top}, {.unit = Unit::bytes, .from_zero = true, .most = 5});
  double left = kMargin + room_for(y);
  Plot plot{{left, top, kWidth - kMargin - left, kMemoryHeight}, axis_of_moments(memory, left), y};
  if (owners.empty()) {
    say_empty(svg, plot.box, "nothing was in memory");
    return svg.str();
  }
  draw_axes(svg, plot, memory.by_order ? "changes of the ledger, in order" : "", "");
  draw_stack(svg, plot, memory.bytes, owners, inks);
  if (memory.predicted) draw_prediction(svg, plot, *memory.predicted);
  draw_marks(svg, plot, memory.marks);
  return svg.str();
}

// Case k from k up to k + 1.
static BytesOverTime one_after_another(const std::vector<Memory>& cases) {
  BytesOverTime all;
  std::map<std::string, std::vector<int64_t>> owners;
  for (const Memory& each : cases)
    for (const Owner& owner : each.bytes.owners) owners[owner.name];
  for (size_t k = 0; k < cases.size(); ++k) {
    const BytesOverTime& bytes = cases[k].bytes;
    for (size_t i = 0; i < bytes.moments.size(); ++i)
      all.moments.push_back(double(k) + double(i) / double(bytes.moments.size()));
    for (auto& [name, values] : owners) {
      auto owner = std::ranges::find(bytes.owners, name, &Owner::name);
      if (owner != bytes.owners.end()) values.insert(values.end(), owner->bytes.begin(), owner->bytes.end());
      values.resize(all.moments.size());
    }
  }
  for (auto& [name, values] : owners) all.owners.push_back({name, std::move(values)});
  return all;
}

// What belongs to case k: the gap before it, its marks, its name and its peak.
static void draw_case(Svg& svg, const Plot& plot, const Memory& memory, double k) {
  constexpr double gap = 10;
  double left = plot.x.place(k), right = plot.x.place(k + 1), bottom = plot.box.y + plot.box.height;
  double peak = double(most_of(total_of(memory.bytes))), highest = plot.y.place(peak);
  double moments = double(memory.bytes.moments.size()), middle = (left + gap + right) / 2;
  svg.rect(Ink::paper, {left - 0.5, plot.box.y - 1, gap + 0.5, plot.box.height});
  for (const Mark& mark : memory.marks) {
    double x = plot.x.place(k + mark.at / moments);
    if (x > left + gap) svg.line(Ink::text, {x, highest}, {x, bottom}, {1, "2 3"});
  }
  svg.text({middle, highest - 6}, said(peak, Unit::bytes), {.anchor = Anchor::middle, .bold = true});
  svg.text({middle, bottom + 18}, shortened(memory.caption.title, right - left), {.anchor = Anchor::middle});
}

static std::string words_of(const Memories& memories) {
  std::string words = "Bold: the peak.";
  if (!memories.marks.empty()) words += concat(" ", memories.marks);
  if (memories.cases.size() > kMostCases) words += concat(" The first ", kMostCases, " are drawn.");
  return words;
}

std::string draw(const Memories& given) {
  Memories memories = given;
  memories.cases.resize(std::min(memories.cases.size(), kMostCases));
  for (const Memory& each : memories.cases) check_bytes(each.bytes);
  BytesOverTime bytes = one_after_another(memories.cases);
  std::vector<Owner> owners = stacked(bytes.owners);
  std::vector<Key> keys;
  std::vector<Ink> inks = inks_of(owners);
  for (size_t k = 0; k < owners.size(); ++k) keys.push_back({inks[k], owners[k].name});
  Head head(memories.caption, words_of(given), keys);
  double top = head.bottom() + 26, bottom = top + kMemoryHeight;
  Svg svg(memories.caption, kWidth, bottom + 30);
  head.draw(svg);
  Range range;
  range.add(double(most_of(total_of(bytes))) * 1.1);
  Axis y = linear_axis(range, {bottom, top}, {.unit = Unit::bytes, .from_zero = true, .between_ticks = false});
  double left = kMargin + room_for(y), right = kWidth - kMargin;
  Axis x{.low = 0, .high = double(memories.cases.size()), .from = left, .to = right};
  Plot plot{{left, top, right - left, kMemoryHeight}, x, y};
  if (owners.empty()) {
    say_empty(svg, plot.box, "nothing was in memory");
    return svg.str();
  }
  draw_axes(svg, plot, "", "");
  draw_stack(svg, plot, bytes, owners, inks);
  for (size_t k = 0; k < memories.cases.size(); ++k) draw_case(svg, plot, memories.cases[k], double(k));
  return svg.str();
}

}  // namespace shardgrad::picture
