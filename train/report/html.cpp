#include <shardgrad/train/report/html.h>

#include <array>
#include <charconv>
#include <cmath>

#include <shardgrad/core/error.h>
#include <shardgrad/picture/svg.h>
#include <shardgrad/picture/text.h>

namespace shardgrad::train::html {

std::string text(std::string_view words) { return picture::escaped(words); }

// As many digits as tell it from its neighbours.
static std::string whole(double value) {
  std::array<char, 32> digits;
  auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

std::string number(double value, std::string_view said) {
  if (!std::isfinite(value)) return text(said);
  return concat("<data value=\"", whole(value), "\">", text(said), "</data>");
}

std::string bytes(int64_t count) { return number(double(count), picture::said(double(count), picture::Unit::bytes)); }

std::string count(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto place = int64_t(digits.size()) - 3; place > (value < 0 ? 1 : 0); place -= 3)
    digits.insert(size_t(place), "\u202f");  // a narrow space that breaks no line
  return number(double(value), digits);
}

std::string table(const Row& head, const std::vector<Row>& rows, bool words) {
  std::string all = concat("<div class=\"scroll\"><table", words ? " class=\"words\"" : "", "><thead><tr>");
  for (const std::string& cell : head) all += concat("<th scope=\"col\">", cell, "</th>");
  all += "</tr></thead><tbody>\n";
  for (const Row& row : rows) {
    all += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      all += i == 0 ? concat("<th scope=\"row\">", row[i], "</th>") : concat("<td>", row[i], "</td>");
    all += "</tr>\n";
  }
  return all + "</tbody></table></div>\n";
}

std::string figure(const std::string& html) { return concat("<figure>", html, "</figure>\n"); }

std::string grid(const std::vector<std::string>& figures) {
  std::string all;
  for (const std::string& each : figures) all += figure(each);
  return all.empty() ? "" : concat("<div class=\"grid\">\n", all, "</div>\n");
}

std::string nothing(std::string_view why) { return concat("<p class=\"nothing\">", text(why), "</p>\n"); }

std::string section(const std::string& id, std::string_view title, std::string_view words, const std::string& body) {
  if (body.empty()) return "";
  return concat("<section id=\"", id, "\">\n<h2>", text(title), "</h2>\n",
                words.empty() ? "" : concat("<p>", text(words), "</p>\n"), body, "</section>\n");
}

}  // namespace shardgrad::train::html
