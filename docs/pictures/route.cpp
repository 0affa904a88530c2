// The route of one layer's gradient through a step of zero3 and into the next one, as ledger and recorder of each rank
// have seen it on device meta.

#include <algorithm>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/picture/blocks.h>
#include <shardgrad/picture/frame.h>

#include "docs/pictures/drawings.h"

namespace drawings {

namespace {

using namespace sg::picture;
using sg::concat;

constexpr const char* kUnit = "1";

struct Event {
  double at;
  std::string what;
  int64_t bytes;
};

/// What a rank has seen of the layer.
struct Seen {
  std::vector<Event> events;  // from when its gradient is opened to when its weights are gathered for the next step
  std::vector<sg::Record> records;
  int64_t optimizer_bytes = 0, shard_bytes = 0;
  int64_t bytes_of(const std::string& what) const {
    auto event = std::ranges::find(events, what, &Event::what);
    SG_CHECK(event != events.end(), "the route of a gradient has no ", what);
    return std::abs(event->bytes);
  }
};

// The order in which it happens, which picture and words rely on.
void check_order(const std::vector<Event>& events) {
  const char* const expected[] = {"+full_gradient", "+gradient_shard", "reduce_scatter",      "-full_gradient",
                                  "step",           "-gradient_shard", "+gathered_parameter", "all_gather"};
  std::string order;
  for (const Event& event : events) order += (order.empty() ? "" : ", ") + event.what;
  bool same = std::ranges::equal(events, expected, {}, &Event::what);
  SG_CHECK(same, "the route of a gradient is not as it was drawn, but: ", order);
}

std::vector<Event> events_of(const sg::LedgerHistory& history, const std::vector<sg::Record>& records, uint16_t unit) {
  std::vector<Event> events, route;
  for (const sg::LedgerChange& change : history.changes())
    if (change.tag.unit == unit)
      events.push_back({change.at, concat(change.bytes > 0 ? "+" : "-", name_of(change.tag.category)), change.bytes});
  for (const sg::Record& record : records)
    if (record.unit == kUnit || record.op == "step") events.push_back({record.begin, record.op, record.bytes_sent});
  std::ranges::stable_sort(events, {}, &Event::at);
  bool stepped = false;
  for (const Event& event : events) {
    if (route.empty() && event.what != "+full_gradient") continue;
    stepped = stepped || event.what == "step";
    bool of_gradient = event.what.ends_with("full_gradient") || event.what.ends_with("gradient_shard");
    bool gathers = stepped && (event.what == "+gathered_parameter" || event.what == "all_gather");
    if (of_gradient || gathers || event.what == "reduce_scatter" || event.what == "step") route.push_back(event);
    if (stepped && event.what == "all_gather") return route;
  }
  return route;
}

Seen seen_of(sg::dist::ProcessGroup& world) {
  Training training(world, 3, 1024, {.strategy = sg::fsdp::Strategy::zero3});
  training.step();
  sg::Ledger& ledger = sg::context().ledger();
  sg::Recorder& recorder = sg::context().recorder();
  recorder.clear();
  recorder.set_tracing(true);
  sg::LedgerHistory history(ledger, recorder);
  training.step(), training.step();
  uint16_t unit = ledger.unit_id(kUnit);
  Seen seen{events_of(history, recorder.records(), unit), recorder.records()};
  seen.optimizer_bytes = ledger.current({sg::Category::optimizer_state, unit});
  seen.shard_bytes = ledger.current({sg::Category::parameter_shard, unit});
  check_order(seen.events);
  return seen;
}

std::string said_of(int64_t bytes) { return said(double(bytes), Unit::bytes); }

std::vector<std::string> words_of(const Seen& seen) {
  return {concat("Backward writes the layer's whole gradient: ", said_of(seen.bytes_of("+full_gradient")),
                 " on each rank."),
          concat("reduce_scatter adds the ranks' gradients up. Each sends ", said_of(seen.bytes_of("reduce_scatter")),
                 " and keeps ", said_of(seen.bytes_of("+gradient_shard")), " of the sum."),
          concat("The whole gradient's memory goes: ", said_of(seen.bytes_of("-full_gradient")), "."),
          concat("AdamW trains the rank's own part of the weights, ", said_of(seen.shard_bytes), ", with ",
                 said_of(seen.optimizer_bytes), " of state; the gradient goes."),
          concat("all_gather brings the whole weights for the next forward: ",
                 said_of(seen.bytes_of("+gathered_parameter")), ", of which each rank sends ",
                 said_of(seen.bytes_of("all_gather")), ".")};
}

void draw_number(Svg& svg, Point at, size_t number) {
  svg.dot(Ink::text, at, 10);
  svg.text({at.x, at.y + 5}, std::to_string(number), {Anchor::middle, Ink::paper, 14, true});
}

/// The first move of the layer that is called so.
const Move& move_of(const Moves& all, const std::string& op) {
  auto move = std::ranges::find_if(all.moves, [&](const Move& each) { return each.op == op && each.unit == kUnit; });
  SG_CHECK(move != all.moves.end(), "no ", op, " of unit ", kUnit);
  return *move;
}

void draw_blocks(Svg& svg, const Moves& all, double top) {
  const Move &reduce = move_of(all, "reduce_scatter"), &gather = move_of(all, "all_gather");
  BlockGrid gradient{{72, top}, 12, 24, kRanks, kRanks};
  BlockGrid gradient_shard = gradient, weight_shard = gradient, weights = gradient;
  gradient_shard.at.x = 212, weight_shard.at.x = 330, weights.at.x = 470;
  for (int rank = 0; rank < kRanks; ++rank) {
    double y = top + gradient.row * rank;
    svg.text({kMargin, y + 11}, concat("rank ", rank), {.ink = Ink::faint});
    svg.line(Ink::text, {gradient_shard.at.x + gradient_shard.width() + 2, y + 5.5}, {weight_shard.at.x - 4, y + 5.5});
  }
  draw_lines(svg, reduce, gradient, gradient_shard);
  draw_lines(svg, gather, weight_shard, weights);
  draw_before(svg, reduce, gradient), draw_after(svg, reduce, gradient_shard);
  draw_before(svg, gather, weight_shard), draw_after(svg, gather, weights);
  struct Column {
    const char* what;
    const char* of;
    double x;
  };
  for (const auto& [what, of, x] : {Column{"whole", "gradient", 96}, Column{"part of", "the sum", 236},
                                    Column{"part of", "weights", 354}, Column{"whole", "weights", 494}}) {
    svg.text({x, top - 28}, what, {.anchor = Anchor::middle});
    svg.text({x, top - 11}, of, {.anchor = Anchor::middle});
  }
  draw_number(svg, {166, top - 22}, 2), draw_number(svg, {295, top - 22}, 4), draw_number(svg, {424, top - 22}, 5);
  draw_number(svg, {96, top + 4 * gradient.row + 4}, 1), draw_number(svg, {120, top + 4 * gradient.row + 4}, 3);
}

}  // namespace

void draw_route(Pictures& all) {
  std::vector<Seen> seen(kRanks);
  auto body = [&](sg::dist::ProcessGroup& world) { seen[size_t(world.rank())] = seen_of(world); };
  sg::dist::run_ranks(kRanks, body, {.device = sg::kMeta, .threads = 1});
  std::vector<RankRecords> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    SG_CHECK(words_of(seen[size_t(rank)]) == words_of(seen[0]), "ranks have seen different routes of a gradient");
    ranks.push_back({rank, seen[size_t(rank)].records});
  }
  Caption caption{"route", "The route of one gradient under zero3", "One layer of three, on four ranks."};
  Head head(caption, "Of a layer's gradient, from backward to the next step's weights. Pale is what is not summed yet.",
            {});
  double top = head.bottom() + 44, y = top + 4 * 24 + 44;
  std::vector<std::pair<size_t, std::string>> lines;
  std::vector<std::string> words = words_of(seen[0]);
  for (size_t i = 0; i < words.size(); ++i) {
    std::vector<std::string> all_of_it = wrapped(words[i], kWidth - 2 * kMargin - 24);
    for (size_t k = 0; k < all_of_it.size(); ++k) lines.push_back({k == 0 ? i + 1 : 0, all_of_it[k]});
  }
  Svg svg(caption, kWidth, y + 20 * double(lines.size()));
  head.draw(svg);
  draw_blocks(svg, moves_of(ranks), top);
  for (const auto& [number, line] : lines) {
    if (number) svg.text({kMargin, y}, std::to_string(number), {.bold = true});
    svg.text({kMargin + 24, y}, line), y += 20;
  }
  for (const std::string& each : words) svg.tell(each);
  all["route_of_a_gradient"] = svg.str();
}

}  // namespace drawings
