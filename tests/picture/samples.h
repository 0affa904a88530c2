#pragma once
// One picture of each kind for every case that is hard: nothing, one, many, huge, tiny, hostile names. Several tests
// look at all of them.

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <shardgrad/picture/bars.h>
#include <shardgrad/picture/blocks.h>
#include <shardgrad/picture/lanes.h>
#include <shardgrad/picture/lines.h>
#include <shardgrad/picture/memory.h>
#include <shardgrad/picture/strip.h>
#include <shardgrad/picture/waits.h>

namespace shardgrad::picture::testing {

inline const char* const kHostile = "<img src=x onerror=\"alert(1)\">]]>&amp;'\xff\x01 \xe5\xb1\xa4";

inline Record record(const std::string& op, const std::string& unit, double begin, double end, uint64_t number = 0,
                     uint64_t group = 1) {
  Record made{.op = op, .unit = unit, .bytes_sent = number ? 786432 : 0};
  made.begin = begin, made.end = end;
  if (number) made.group = group, made.number = number;
  return made;
}

/// The number-th collective of a group of so many ranks, on 100 elements of each, as one of them records it.
inline Record call(const std::string& op, uint64_t number, int ranks, uint64_t group = 1) {
  Record made = record(op, "blocks.0", 0, 1, number, group);
  made.sequence = number + 100 * group, made.elements = 100 * ranks;
  made.bytes_sent = (op == "all_reduce" ? 2 : 1) * 400 * (ranks - 1);
  return made;
}

inline std::vector<RankRecords> ranks_that(const std::string& op, int ranks, uint64_t times = 1) {
  std::vector<RankRecords> made;
  for (int rank = 0; rank < ranks; ++rank) {
    made.push_back({rank, {}});
    for (uint64_t i = 1; i <= times; ++i) made.back().records.push_back(call(op, i, ranks));
  }
  return made;
}

/// Gathers, computes, reduces and steps; `late` seconds after the others.
inline RankRecords step_of_rank(int rank, double late, const std::string& unit = "blocks.") {
  RankRecords made{rank, {}, late};
  double at = 0;
  uint64_t number = 0;
  for (int i = 0; i < 3; ++i, at += 4e-3) {
    std::string name = unit + std::to_string(i);
    made.records.push_back(record("all_gather", name, at, at + 1e-3, ++number));
    made.records.push_back(record("wait", name, at + 5e-4, at + 1e-3));
    made.records.push_back(record("forward", name, at + 1e-3, at + 3e-3));
    made.records.push_back(record("reshard", name, at + 3e-3, at + 3e-3));
  }
  for (int i = 2; i >= 0; --i, at += 4e-3) {
    made.records.push_back(record("backward", unit + std::to_string(i), at, at + 3e-3));
    made.records.push_back(record("reduce_scatter", unit + std::to_string(i), at + 3e-3, at + 5e-3, ++number));
  }
  made.records.push_back(record("step", "", at + 1e-3, at + 2e-3));
  made.records.push_back(record("barrier", "", at + 2e-3, -1, ++number));
  return made;
}

inline Series series(std::string name, std::vector<double> values) {
  Series made{std::move(name), {}};
  for (double value : values) made.points.push_back({double(made.points.size()), value});
  return made;
}

inline std::string lines_of(const std::string& id, std::vector<Series> all, bool log = false) {
  return draw(Lines{{id, "Loss " + id, ""}, "step", "loss", Unit::plain, log, std::move(all)});
}

inline BytesOverTime bytes_of(size_t owners, size_t moments) {
  BytesOverTime made;
  for (size_t i = 0; i < moments; ++i) made.moments.push_back(double(i) * 1e-3);
  for (size_t k = 0; k < owners; ++k) {
    made.owners.push_back({"owner " + std::to_string(k), {}});
    for (size_t i = 0; i < moments; ++i) made.owners[k].bytes.push_back(int64_t((i * (k + 3)) % 17) << 18);
  }
  return made;
}

inline void add_lines(std::map<std::string, std::string>& all) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  std::vector<double> many;
  for (int i = 0; i < 10000; ++i) many.push_back(i % 1000 == 7 ? nan : 2 * std::exp(-i / 2e3) + 0.1 * std::sin(i * 7));
  std::vector<Series> ten;
  for (int i = 0; i < 10; ++i) ten.push_back(series("layers." + std::to_string(i), {1.0 * i, 2.0, 3.0 + i}));
  all["lines"] = lines_of("lines", {series("train", {3, 2, nan, 1, 1}), series("test", {3, 2.5, 2, 2, inf})});
  all["lines_none"] = lines_of("lines_none", {});
  all["lines_one"] = lines_of("lines_one", {series("loss", {2.3})});
  all["lines_nan"] = lines_of("lines_nan", {series("loss", {nan, inf, -inf})});
  all["lines_huge"] = lines_of("lines_huge", {series("loss", {-1.7e308, 1.7e308, 0})});
  all["lines_tiny"] = lines_of("lines_tiny", {series("loss", {-3e-12, -1e-12, 5e-324})});
  all["lines_log"] = lines_of("lines_log", {series("norm", {1e-9, 0, 1e9, -1})}, true);
  all["lines_many"] = lines_of("lines_many", {series("loss", many)});
  all["lines_ten"] = lines_of("lines_ten", ten);
  all["lines_hostile"] = draw(Lines{{"lines_hostile", kHostile, kHostile},
                                    kHostile,
                                    kHostile,
                                    Unit::plain,
                                    false,
                                    {series(kHostile, {1, 2}), series(kHostile, {nan})}});
}

inline void add_memory(std::map<std::string, std::string>& all) {
  Memory memory{
      {"memory", "Memory", ""}, bytes_of(4, 40), false, int64_t(12) << 20, {{0, "forward"}, {0.02, "backward"}}};
  all["memory"] = draw(memory);
  all["memory_none"] = draw(Memory{{"memory_none", "Memory", ""}, {}});
  all["memory_one"] = draw(Memory{{"memory_one", "Memory", ""}, bytes_of(2, 2), true});
  all["memory_many"] = draw(Memory{{"memory_many", "Memory", ""}, bytes_of(60, 10000)});
  Memories side_by_side{{"memories", "Memory", ""}, {memory, memory}, "Dotted: backward."};
  side_by_side.cases[1].bytes = bytes_of(2, 7);
  all["memories"] = draw(side_by_side);
  all["memories_none"] = draw(Memories{{"memories_none", "Memory", ""}, {}});
  side_by_side = {{"memories_many", "Memory", ""}, std::vector<Memory>(40, memory)};
  all["memories_many"] = draw(side_by_side);
  memory.caption = {"memory_hostile", kHostile, kHostile};
  memory.bytes.owners[0].name = kHostile, memory.marks[0].name = kHostile;
  all["memory_hostile"] = draw(memory);
  all["memories_hostile"] = draw(Memories{{"memories_hostile", kHostile, kHostile}, {memory}, kHostile});
}

inline void add_lanes(std::map<std::string, std::string>& all) {
  all["lanes"] = draw(Lanes{{"lanes", "One step", ""}, {step_of_rank(0, 0), step_of_rank(1, 3e-4)}});
  all["lanes_none"] = draw(Lanes{{"lanes_none", "One step", ""}, {}});
  all["lanes_moment"] = draw(Lanes{{"lanes_moment", "", ""}, {{0, {record("barrier", "", 1, 1, 1)}}}});
  Lanes many{{"lanes_many", "A hundred ranks", ""}, {}};
  for (int i = 0; i < 100; ++i) many.ranks.push_back(step_of_rank(i, i * 1e-4));
  all["lanes_many"] = draw(many);
  Lanes longer{{"lanes_long", "10,000 steps", ""}, {{0, {}}}};
  for (int i = 0; i < 10000; ++i)
    for (const Record& each :
         {record("forward", "a", i, i + 0.5), record("all_gather", "a", i + 0.25, i + 0.75, uint64_t(i) + 1)})
      longer.ranks[0].records.push_back(each);
  all["lanes_long"] = draw(longer);
  Lanes hostile{{"lanes_hostile", kHostile, kHostile}, {step_of_rank(0, 0, kHostile)}};
  hostile.ranks[0].records[0].op = kHostile;
  all["lanes_hostile"] = draw(hostile);
}

inline void add_strips(std::map<std::string, std::string>& all) {
  all["strip"] = draw(Strip{{"strip", "Units", ""}, step_of_rank(0, 0).records});
  all["strip_none"] = draw(Strip{{"strip_none", "Units", ""}, {record("step", "", 0, 1)}});
  all["strip_hostile"] = draw(Strip{{"strip_hostile", kHostile, kHostile}, step_of_rank(0, 0, kHostile).records});
  Strip thousand{{"strip_thousand", "A thousand units", ""}, {}};
  for (int i = 0; i < 1000; ++i) {
    std::string unit = "model.layers." + std::to_string(i) + ".attention";
    thousand.records.push_back(record("all_gather", unit, i, i + 0.5, uint64_t(i) + 1));
    thousand.records.push_back(record("reshard", unit, i + 3, i + 3));
  }
  all["strip_thousand"] = draw(thousand);
}

inline void add_bars(std::map<std::string, std::string>& all) {
  Bars bars{
      {"bars", "Sent", ""}, Unit::bytes, "measured", "formula", {{"a", 3 << 20, 3 << 20}, {"b", 5 << 20, 3 << 20}}};
  all["bars"] = draw(bars);
  bars.caption = {"bars_hostile", kHostile, kHostile}, bars.pairs[0].name = bars.measured = kHostile;
  all["bars_hostile"] = draw(bars);
  all["bars_none"] = draw(Bars{{"bars_none", "Sent", ""}});
  Bars thousand{{"bars_thousand", "Sent", ""}, Unit::bytes, "measured", "formula", {}};
  for (int i = 0; i < 1000; ++i) thousand.pairs.push_back({"unit " + std::to_string(i), 100, 100.0 + (i % 100 == 9)});
  all["bars_thousand"] = draw(thousand);
  all["bars_strange"] =
      draw(Bars{{"bars_strange", "Sent", ""}, Unit::plain, "a", "b", {{"zero", 0, 0}, {"nan", std::nan(""), 1}}});
}

inline void add_blocks(std::map<std::string, std::string>& all) {
  all["blocks"] = draw(Blocks{{"blocks", "What moves", ""}, ranks_that("all_reduce", 4, 5)});
  all["blocks_none"] = draw(Blocks{{"blocks_none", "What moves", ""}, {}});
  all["blocks_one"] = draw(Blocks{{"blocks_one", "What moves", ""}, ranks_that("all_gather", 1)});
  all["blocks_many"] = draw(Blocks{{"blocks_many", "What moves", ""}, ranks_that("reduce_scatter", 100, 60)});
  std::vector<RankRecords> hostile = ranks_that("all_gather", 2);
  for (RankRecords& rank : hostile) rank.records[0].unit = rank.records[0].phase = kHostile;
  all["blocks_hostile"] = draw(Blocks{{"blocks_hostile", kHostile, kHostile}, hostile});
}

inline void add_waits(std::map<std::string, std::string>& all) {
  auto waits = [](int count, double seconds) {
    Waits made;
    made.calls = 10;
    for (int i = 0; i < count; ++i) made.ranks.push_back(i * 7);
    made.seconds.assign(size_t(count), std::vector<double>(size_t(count), seconds));
    for (size_t i = 0; i < size_t(count); ++i) made.seconds[i][i] = 0;
    return made;
  };
  all["waits"] = draw(WaitsPicture{{"waits", "Who waited for whom", ""}, waits(4, 1.234e-3)});
  all["waits_none"] = draw(WaitsPicture{{"waits_none", "Who waited for whom", ""}, {}});
  all["waits_never"] = draw(WaitsPicture{{"waits_never", "Who waited for whom", ""}, waits(2, 0)});
  all["waits_long"] = draw(WaitsPicture{{"waits_long", kHostile, kHostile}, waits(6, 86400)});
  all["waits_many"] = draw(WaitsPicture{{"waits_many", "Who waited for whom", ""}, waits(200, 1e-3)});
}

/// By id.
inline std::map<std::string, std::string> all_samples() {
  std::map<std::string, std::string> all;
  add_lines(all), add_memory(all), add_lanes(all), add_strips(all), add_bars(all), add_blocks(all), add_waits(all);
  return all;
}

}  // namespace shardgrad::picture::testing
