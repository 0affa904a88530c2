#pragma once
// What moves between ranks: a panel for each collective, in the order in which the ranks called them, and in it a row
// for each rank. Left is what a rank brings, right what it has then, and a line is for what comes from another rank. Of
// two ranks:
//
//     all_gather              reduce_scatter
//     [A][ ] ─┬──┬─ [A][B]    [a][b] ─┬──┬─ [A][ ]      a, b: of one rank
//     [ ][B] ─┴──┴─ [A][B]    [a][b] ─┴──┴─ [ ][B]      A, B: whole, or the sum over the ranks
//
// The lines say whose bytes a rank gets, not the way that they take: a transport may pass them on from rank to rank.

#include <string>
#include <vector>

#include <shardgrad/picture/lanes.h>

namespace shardgrad::picture {

/// One all_gather, reduce_scatter or all_reduce. Groups that make the same call at the same place of their programs,
/// such as the rows of a mesh, move side by side.
struct Move {
  std::string op, unit, phase;
  std::vector<std::vector<int>> groups;  ///< ranks; part i of what is moved is that of a group's i-th
  int64_t bytes_sent = 0;                ///< by a rank, in the mean
};

struct Moves {
  std::vector<Move> moves;  ///< in the order of the calls, whatever the clocks say
  size_t left_out = 0;      ///< other collectives that send something, and those that not all ranks have a record of
};

/// What the records of all ranks say; the unit is what the first one calls it. Throws Error(input) where a collective
/// is another one on another rank.
Moves moves_of(const std::vector<RankRecords>& ranks);

/// Ranks and collectives that are too many for the picture are left out, and it says so.
struct Blocks {
  Caption caption;
  std::vector<RankRecords> ranks;
};
std::string draw(const Blocks& blocks);

/// Where blocks stand: those of rank r in row r.
struct BlockGrid {
  Point at;          ///< of rank 0's first block
  double size = 9;   ///< of a block
  double row = 18;   ///< from one rank to the next
  size_t ranks = 0;  ///< that are drawn
  size_t parts = 0;  ///< places in a row
  double width() const { return size * double(parts); }
};
/// The blocks of each rank before a move and after it; what is pale is yet to be summed.
void draw_before(Svg& svg, const Move& move, const BlockGrid& grid);
void draw_after(Svg& svg, const Move& move, const BlockGrid& grid);
/// The lines from the blocks of `before` to those of `after`, which has the same rows.
void draw_lines(Svg& svg, const Move& move, const BlockGrid& before, const BlockGrid& after);

}  // namespace shardgrad::picture
