#include <shardgrad/picture/blocks.h>

#include <algorithm>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/frame.h>

namespace shardgrad::picture {

namespace {

constexpr size_t kMostBlockRanks = 8, kMostMoves = 16;
constexpr double kPale = 0.4, kBetween = 32, kPanelGap = 18, kPanelLine = 17, kBlockGap = 1;

/// A block of one rank.
struct Held {
  size_t rank, part;
  bool summed;
  std::string tip;
};

// One for each block that is drawn. `after`: the move.
std::vector<Held> held(const Move& move, const BlockGrid& grid, bool after) {
  std::vector<Held> blocks;
  bool gathers = move.op == "all_gather", scatters = move.op == "reduce_scatter";
  for (const std::vector<int>& group : move.groups)
    for (size_t i = 0; i < group.size(); ++i)
      for (size_t part = 0; part < std::min(grid.parts, group.size()); ++part) {
        if (size_t(group[i]) >= grid.ranks) continue;
        bool whole = after ? !scatters : !gathers;  // else the rank's own part is all that it has
        if (!whole && part != i) continue;
        std::string tip;
        if (after && gathers && part != i) tip = concat("part ", part, ", from rank ", group[part]);
        if (after && !gathers) tip = concat("part ", part, ", summed over the ranks");
        blocks.push_back({size_t(group[i]), part, gathers || after, tip});
      }
  return blocks;
}

void draw_blocks(Svg& svg, const BlockGrid& grid, const std::vector<Held>& blocks) {
  auto box = [&](size_t rank, size_t part) {
    return Box{grid.at.x + grid.size * double(part), grid.at.y + grid.row * double(rank), grid.size - kBlockGap,
               grid.size - kBlockGap};
  };
  std::vector<bool> taken(grid.ranks * grid.parts);
  for (const Held& block : blocks) taken[block.rank * grid.parts + block.part] = true;
  for (size_t i = 0; i < taken.size(); ++i)
    if (!taken[i]) svg.rect(Ink::grid, box(i / grid.parts, i % grid.parts), "", 0.8);
  for (const Held& block : blocks)
    svg.rect(ink_of(block.part), box(block.rank, block.part), block.tip, block.summed ? 1 : kPale);
}

// What a panel of that width says above its blocks.
std::vector<std::string> words_of(const Move& move, double width) {
  std::vector<std::string> lines{move.op};
  std::string whole = move.phase.empty() ? move.unit : concat(move.unit, ", ", move.phase);
  if (!move.unit.empty()) lines.push_back(shortened(width_of(whole) > width ? move.unit : whole, width));
  lines.push_back(said(double(move.bytes_sent), Unit::bytes));
  return lines;
}

/// All panels are alike.
struct Layout {
  size_t ranks = 0, parts = 0, lines = 0, columns = 1;
  double left = 0, width = 0, height = 0;
};

Layout layout_of(const std::vector<Move>& moves) {
  Layout layout;
  for (const Move& move : moves) {
    layout.lines = std::max(layout.lines, words_of(move, kWidth).size());
    for (const std::vector<int>& group : move.groups) {
      layout.parts = std::max(layout.parts, std::min(group.size(), kMostBlockRanks));
      for (int rank : group) layout.ranks = std::max(layout.ranks, std::min(size_t(rank) + 1, kMostBlockRanks));
    }
  }
  BlockGrid grid{.parts = layout.parts};
  layout.left = kMargin + width_of("rank 0") + 8;
  layout.width = std::max(2 * grid.width() + kBetween, width_of("reduce_scatter"));
  layout.columns =
      std::max<size_t>(1, size_t((kWidth - kMargin - layout.left + kPanelGap) / (layout.width + kPanelGap)));
  layout.height = kPanelLine * double(layout.lines) + 8 + grid.row * double(layout.ranks) + 14;
  return layout;
}

void draw_panel(Svg& svg, const Move& move, const Layout& layout, Point at) {
  std::vector<std::string> lines = words_of(move, layout.width);
  for (size_t i = 0; i < lines.size(); ++i) {
    TextStyle style{.ink = i == 0 ? Ink::text : Ink::faint};
    svg.text({at.x, at.y + 12 + kPanelLine * double(i)}, lines[i], style);
  }
  BlockGrid before{{at.x, at.y + kPanelLine * double(layout.lines) + 8}};
  before.ranks = layout.ranks, before.parts = layout.parts;
  BlockGrid after = before;
  after.at.x += before.width() + kBetween;
  draw_lines(svg, move, before, after);
  draw_before(svg, move, before);
  draw_after(svg, move, after);
}

std::string words_of(const Moves& all, size_t drawn, size_t ranks) {
  if (all.moves.empty()) return "";
  int64_t sent = 0;
  bool sums = false;
  for (const Move& move : all.moves) sent += move.bytes_sent, sums = sums || move.op != "all_gather";
  std::string text = concat("A rank sends ", said(double(sent), Unit::bytes), " in ", all.moves.size(),
                            all.moves.size() == 1 ? " collective." : " collectives.");
  if (sums) text += " Pale is what is not summed yet.";
  if (drawn < all.moves.size()) text += concat(" The first ", drawn, " are drawn.");
  if (ranks > kMostBlockRanks) text += concat(" Ranks from ", kMostBlockRanks, " on are not drawn.");
  if (all.left_out)
    text += concat(" ", all.left_out,
                   all.left_out == 1 ? " other collective is left out." : " other collectives are left out.");
  return text;
}

}  // namespace

void draw_before(Svg& svg, const Move& move, const BlockGrid& grid) { draw_blocks(svg, grid, held(move, grid, false)); }

void draw_after(Svg& svg, const Move& move, const BlockGrid& grid) { draw_blocks(svg, grid, held(move, grid, true)); }

void draw_lines(Svg& svg, const Move& move, const BlockGrid& before, const BlockGrid& after) {
  auto middle = [&](int rank) { return before.row * double(rank) + (before.size - kBlockGap) / 2; };
  for (const std::vector<int>& group : move.groups)
    for (size_t from = 0; from < group.size(); ++from)
      for (size_t to = 0; to < group.size(); ++to) {
        if (from == to || size_t(std::max(group[from], group[to])) >= before.ranks) continue;
        Ink ink = move.op == "all_gather" ? ink_of(from) : move.op == "reduce_scatter" ? ink_of(to) : Ink::grey;
        svg.line(ink, {before.at.x + before.width() + 2, before.at.y + middle(group[from])},
                 {after.at.x - 3, after.at.y + middle(group[to])});
      }
}

std::string draw(const Blocks& blocks) {
  Moves all = moves_of(blocks.ranks);
  std::vector<Move> moves(all.moves.begin(),
                          all.moves.begin() + std::ptrdiff_t(std::min(all.moves.size(), kMostMoves)));
  Layout layout = layout_of(moves);
  std::vector<Key> keys;
  for (size_t part = 0; part < layout.parts; ++part) keys.push_back({ink_of(part), concat("part ", part)});
  Head head(blocks.caption, words_of(all, moves.size(), blocks.ranks.size()), keys);
  size_t rows = (moves.size() + layout.columns - 1) / layout.columns;
  double top = head.bottom() + 8;
  Svg svg(blocks.caption, kWidth, top + (moves.empty() ? 60 : layout.height * double(rows)));
  head.draw(svg);
  if (moves.empty()) say_empty(svg, {kMargin, top, kWidth - 2 * kMargin, 40}, "nothing was gathered or reduced");
  for (size_t i = 0; i < moves.size(); ++i) {
    Point at{layout.left + (layout.width + kPanelGap) * double(i % layout.columns),
             top + layout.height * double(i / layout.columns)};
    draw_panel(svg, moves[i], layout, at);
    for (size_t rank = 0; i % layout.columns == 0 && rank < layout.ranks; ++rank)
      svg.text({kMargin, at.y + kPanelLine * double(layout.lines) + 18 + BlockGrid().row * double(rank)},
               concat("rank ", rank), {.ink = Ink::faint});
  }
  return svg.str();
}

}  // namespace shardgrad::picture
