// The rooms of the library as a house, in which a room stands upon those that it includes. Where walls are is said
// here; that they tell the truth is checked against the arrows of architecture.md, which scripts/include-graph draws
// from the sources. What a room answers is of the page's table.

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/frame.h>

#include "docs/pictures/drawings.h"

namespace drawings {

namespace {

using namespace sg::picture;

struct Room {
  const char* name;
  double left, right;  // of a house that is 6 wide
  int floor, ceiling;  // storeys, from 0 on
  Ink ink;
};
constexpr Room kRooms[] = {
    {"core", 0, 6, 0, 0, Ink::grey},        {"kernels", 0, 4.85, 1, 1, Ink::orange},
    {"dist", 0, 1.7, 2, 2, Ink::sky},       {"autograd", 1.7, 4.85, 2, 2, Ink::green},
    {"parallel", 0, 1.95, 3, 3, Ink::blue}, {"nn", 1.95, 2.8, 3, 3, Ink::green},
    {"optim", 2.8, 3.8, 3, 3, Ink::green},  {"certify", 3.8, 4.85, 3, 4, Ink::olive},
    {"fsdp", 0, 3.8, 4, 4, Ink::blue},      {"picture", 4.85, 6, 1, 4, Ink::pink},
    {"train", 0, 6, 5, 5, Ink::red},
};
constexpr double kStorey = 68, kOpaque = 0.35, kEaves = 70;
constexpr int kStoreys = 6;

std::string text_of(const std::filesystem::path& page) {
  std::ostringstream text;
  text << std::ifstream(page).rdbuf();
  SG_CHECK(!text.str().empty(), page.string(), " cannot be read");
  return text.str();
}

using Arrows = std::set<std::pair<std::string, std::string>>;

Arrows arrows_of(const std::string& page) {
  Arrows arrows;
  std::regex arrow("^  (\\w+) --> (\\w+)$", std::regex::ECMAScript | std::regex::multiline);
  for (std::sregex_iterator it(page.begin(), page.end(), arrow), end; it != end; ++it)
    arrows.insert({(*it)[1], (*it)[2]});
  return arrows;
}

void check_walls(const Arrows& arrows) {
  Arrows standing;
  for (const Room& room : kRooms)
    for (const Room& below : kRooms)
      if (below.ceiling + 1 == room.floor && std::max(room.left, below.left) < std::min(room.right, below.right))
        standing.insert({room.name, below.name});
  for (const auto& [room, below] : arrows)
    SG_CHECK(standing.contains({room, below}), room, " includes ", below, ", and does not stand upon it in rooms.cpp");
  for (const auto& [room, below] : standing)
    SG_CHECK(arrows.contains({room, below}), room, " stands upon ", below, " in rooms.cpp, and does not include it");
}

// The first words of the table's row.
std::string answer_of(const std::string& page, const std::string& room) {
  std::smatch row;
  std::regex begin("\\| `" + room + "/` \\| ([^,;:(|]+)");
  SG_CHECK(std::regex_search(page, row, begin), "architecture.md has no row of `", room, "/`");
  std::string answer = row[1];
  std::erase(answer, '`');
  while (answer.ends_with(' ')) answer.pop_back();
  return answer;
}

void draw_room(Svg& svg, const Room& room, const std::string& answer, double top) {
  double unit = (kWidth - 2 * kMargin) / 6, left = kMargin + unit * room.left, width = unit * (room.right - room.left);
  double y = top + kStorey * (kStoreys - 1 - room.ceiling), height = kStorey * (room.ceiling - room.floor + 1);
  double inner = width - 12;
  if (room.floor == kStoreys - 1) {  // the roof
    Point roof[] = {{left, y + height}, {left + kEaves, y}, {left + width - kEaves, y}, {left + width, y + height}};
    svg.area(room.ink, roof, "", kOpaque);
    inner -= 2 * kEaves;
  } else {
    svg.rect(room.ink, {left + 1, y + 1, width - 2, height - 2}, "", kOpaque);
  }
  std::vector<std::string> lines = wrapped(answer, inner);
  double middle = left + width / 2, line = y + height / 2 - 8.5 * double(lines.size()) + 3;
  svg.text({middle, line}, room.name, {Anchor::middle, Ink::text, 16, true});
  for (const std::string& each : lines) svg.text({middle, line += 17}, each, {Anchor::middle, Ink::text});
}

}  // namespace

void draw_rooms(Pictures& all, const std::filesystem::path& architecture_page) {
  std::string page = text_of(architecture_page);
  check_walls(arrows_of(page));
  Caption caption{"rooms", "The rooms of the library", "Each folder of the library, and what it answers."};
  Head head(caption, "A room includes only those that it stands upon, and what these stand upon.", {});
  double top = head.bottom() + 4;
  Svg svg(caption, kWidth, top + kStorey * kStoreys + kMargin);
  head.draw(svg);
  for (const Room& room : kRooms) {
    draw_room(svg, room, answer_of(page, room.name), top);
    svg.tell(sg::concat(room.name, ": ", answer_of(page, room.name), "."));
  }
  for (const auto& [room, below] : arrows_of(page)) svg.tell(sg::concat(room, " stands upon ", below, "."));
  all["rooms"] = svg.str();
}

}  // namespace drawings
