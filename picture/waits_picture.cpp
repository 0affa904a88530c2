#include <algorithm>
#include <cmath>
#include <numeric>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/frame.h>
#include <shardgrad/picture/waits.h>

namespace shardgrad::picture {

namespace {

constexpr size_t kMostRows = 16, kMostWithNumbers = 6;
constexpr double kMostShade = 0.7;  // so that the number in it can be read

void check_square(const Waits& waits) {
  SG_CHECK(waits.seconds.size() == waits.ranks.size(), "picture: ", waits.seconds.size(), " rows of waits for ",
           waits.ranks.size(), " ranks");
  for (const auto& row : waits.seconds) {
    SG_CHECK(row.size() == waits.ranks.size(), "picture: a row of ", row.size(), " waits for ", waits.ranks.size(),
             " ranks");
    for (double wait : row) SG_CHECK(std::isfinite(wait) && wait >= 0, "picture: a rank waited for ", wait, " s");
  }
}

double by_rank(const Waits& waits, size_t i) {
  return std::accumulate(waits.seconds[i].begin(), waits.seconds[i].end(), 0.0);
}

double for_rank(const Waits& waits, size_t i) {
  double sum = 0;
  for (const auto& row : waits.seconds) sum += row[i];
  return sum;
}

// The rows to draw, in the order of the ranks.
std::vector<size_t> rows_of(const Waits& waits) {
  std::vector<size_t> rows(waits.ranks.size());
  std::iota(rows.begin(), rows.end(), size_t(0));
  if (rows.size() <= kMostRows) return rows;
  std::ranges::stable_sort(rows, std::greater(), [&](size_t i) { return by_rank(waits, i) + for_rank(waits, i); });
  rows.resize(kMostRows);
  std::ranges::sort(rows);
  return rows;
}

std::string waits_in_words(const Waits& waits, size_t drawn) {
  std::string text = concat("In ", std::to_string(waits.calls), waits.calls == 1 ? " collective" : " collectives");
  size_t worst = 0;
  double all = 0;
  for (size_t i = 0; i < waits.ranks.size(); ++i) {
    all += for_rank(waits, i);
    if (for_rank(waits, i) > for_rank(waits, worst)) worst = i;
  }
  if (all > 0)
    text += concat(" ranks waited ", said(all, Unit::seconds), ", ", percent_of(for_rank(waits, worst) / all),
                   " of it for rank ", std::to_string(waits.ranks[worst]), ".");
  else
    text += " no rank waited for another.";
  if (waits.left_out) text += concat(" ", std::to_string(waits.left_out), " more have no record of all their ranks.");
  if (drawn < waits.ranks.size())
    text += concat(" The ", std::to_string(drawn), " of ", std::to_string(waits.ranks.size()),
                   " ranks with the longest waits are drawn.");
  return text;
}

/// A square of cells, with the sums of its rows at its right.
struct Cells {
  std::vector<size_t> rows;
  double left, top, size, most;
  Measure measure;
};

std::string in_cell(double seconds, const Cells& cells) {
  if (seconds == 0) return "·";
  double step = cells.most / cells.measure.size;
  return said(seconds / cells.measure.size, step >= 100 ? 1 : step >= 10 ? 0.1 : 0.01);
}

void draw_row(Svg& svg, const Waits& waits, const Cells& cells, size_t row) {
  size_t who = cells.rows[row];
  double y = cells.top + cells.size * double(row), middle = y + cells.size / 2 + 5;
  std::string rank = std::to_string(waits.ranks[who]);
  svg.text({cells.left - 8, middle}, cells.rows.size() > 12 ? rank : "rank " + rank, {.anchor = Anchor::end});
  for (size_t column = 0; column < cells.rows.size(); ++column) {
    size_t whom = cells.rows[column];
    double seconds = waits.seconds[who][whom], x = cells.left + cells.size * double(column);
    std::string tip = concat("rank ", rank, " waited ", said(seconds, Unit::seconds), " for rank ",
                             std::to_string(waits.ranks[whom]));
    if (who == whom) continue;
    Box box{x + 1, y + 1, cells.size - 2, cells.size - 2};
    svg.rect(Ink::paper, box);
    if (seconds > 0) svg.rect(Ink::red, box, tip, kMostShade * seconds / cells.most);
    if (cells.rows.size() <= kMostWithNumbers)
      svg.text({x + cells.size / 2, middle}, in_cell(seconds, cells), {.anchor = Anchor::middle});
  }
  double right = cells.left + cells.size * double(cells.rows.size());
  svg.text({right + 8, middle}, said(by_rank(waits, who), Unit::seconds), {.ink = Ink::faint});
}

void draw_cells(Svg& svg, const Waits& waits, const Cells& cells) {
  double width = cells.size * double(cells.rows.size());
  svg.rect(Ink::grid, {cells.left, cells.top, width, width});
  for (size_t row = 0; row < cells.rows.size(); ++row) draw_row(svg, waits, cells, row);
  double free_from = 0;
  for (size_t column = 0; column < cells.rows.size(); ++column) {
    std::string rank = std::to_string(waits.ranks[cells.rows[column]]);
    double centre = cells.left + cells.size * (double(column) + 0.5), half = width_of(rank) / 2;
    if (centre - half < free_from) continue;
    svg.text({centre, cells.top - 8}, rank, {.anchor = Anchor::middle});
    free_from = centre + half + 4;
  }
  svg.text({cells.left, cells.top - 28}, concat("waited for rank …, in ", cells.measure.name), {.ink = Ink::faint});
  svg.text({cells.left + width + 8, cells.top - 8}, "in all", {.ink = Ink::faint});
}

}  // namespace

std::string draw(const WaitsPicture& picture) {
  const Waits& waits = picture.waits;
  check_square(waits);
  Cells cells{rows_of(waits), 0, 0, 0, 0, {}};
  for (size_t who : cells.rows)
    for (size_t whom : cells.rows) cells.most = std::max(cells.most, waits.seconds[who][whom]);
  cells.measure = measure_of(Unit::seconds, cells.most);
  bool empty = waits.calls == 0;
  Head head(picture.caption, empty ? "" : waits_in_words(waits, cells.rows.size()), {});
  cells.left = kMargin + 80, cells.top = head.bottom() + 44;
  double room = kWidth - kMargin - 80 - cells.left;
  cells.size = std::min(60.0, room / double(std::max<size_t>(1, cells.rows.size())));
  double height = empty ? 20 : cells.size * double(cells.rows.size());
  Svg svg(picture.caption, kWidth, cells.top + height + kMargin);
  head.draw(svg);
  if (empty)
    say_empty(svg, {0, head.bottom(), kWidth, 60}, "no collective has a record of all its ranks");
  else
    draw_cells(svg, waits, cells);
  return svg.str();
}

}  // namespace shardgrad::picture
