#pragma once
// Pieces of a page. Texts are escaped where they come in; what is called `html` is taken as it is.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad::train::html {

std::string text(std::string_view words);
/// A number of the run's files, as people read it; the page says its whole value to programs.
std::string number(double value, std::string_view said);
std::string bytes(int64_t count);
std::string count(int64_t value);

using Row = std::vector<std::string>;
/// Rows of html. The first column names the row, the others are numbers unless `words`.
std::string table(const Row& head, const std::vector<Row>& rows, bool words = false);
/// A card with a picture or a table in it.
std::string figure(const std::string& html);
/// Cards beside each other where there is room.
std::string grid(const std::vector<std::string>& figures);
/// What there would be to see, and why there is not.
std::string nothing(std::string_view why);
/// A part of the page. Throws nothing; an empty body is left out.
std::string section(const std::string& id, std::string_view title, std::string_view words, const std::string& body);

}  // namespace shardgrad::train::html
