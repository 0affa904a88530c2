#include <shardgrad/train/data/csv_table.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/train/data/csv_reader.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/nearest.h>
#include <shardgrad/train/text/utf8.h>

namespace shardgrad::data {
namespace {

using train::shortened;

// The number that a text is in any locale; NaN for what is none. Beyond what a double holds it is infinite.
double number_of(std::string_view text) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = kNone;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return kNone;
  return error == std::errc::result_out_of_range ? std::numeric_limits<double>::infinity() : value;
}

class TableReader {
 public:
  explicit TableReader(const CsvOptions& options)
      : options_(options), file_(options.path), reader_(file_, options.delimiter) {}
  CsvTable read();

 private:
  void read_header();
  void check_names() const;
  size_t find(const std::string& name, const char* option) const;
  void read_row();
  double number(size_t column) const;
  double label();
  void check_text(size_t column, std::string_view text) const;
  void order_labels();
  template <class... Parts> [[noreturn]] void refuse(const Parts&... parts) const {
    fail("'", options_.path, "', line ", reader_.line(), parts...);
  }

  const CsvOptions& options_;
  DataFile file_;
  CsvReader reader_;
  std::vector<std::string> names_;
  size_t target_ = 0;
  std::vector<size_t> used_;              // columns that are inputs
  std::map<std::string, double> labels_;  // numbered as they come
  CsvTable table_;
};

CsvTable TableReader::read() {
  SG_CHECK(reader_.next(), "'", options_.path, "' is empty; the first line must name the columns");
  read_header();
  while (reader_.next()) read_row();
  SG_CHECK(table_.targets.size() >= 2, "'", options_.path, "' has ", table_.targets.size(),
           " rows below its header; two are the least, one to train on and one to test");
  if (options_.kind == TargetKind::classes) order_labels();
  return std::move(table_);
}

void TableReader::read_header() {
  for (size_t c = 0; c < reader_.size(); ++c) names_.emplace_back(reader_[c]);
  check_names();
  target_ = find(options_.target, "the target");
  std::set<size_t> left_out{target_};
  for (const std::string& name : options_.drop)
    SG_CHECK(left_out.insert(find(name, "drop")).second, "'", options_.path, "': drop names column '", name,
             "', which is ", name == options_.target ? "the target" : "dropped already");
  for (size_t c = 0; c < names_.size(); ++c) {
    if (left_out.contains(c)) continue;
    used_.push_back(c);
    table_.columns.push_back(names_[c]);
  }
  SG_CHECK(!used_.empty(), "'", options_.path,
           "' has no column beside the target that is not dropped; one is the least");
}

void TableReader::check_names() const {
  if (std::ranges::all_of(names_, [](const auto& name) { return !std::isnan(number_of(name)); }))
    refuse(": the first line must name the columns, and has numbers: '", shortened(names_[0]), "'; add such a line");
  std::map<std::string, size_t> places;
  for (size_t c = 0; c < names_.size(); ++c) {
    check_text(c, names_[c]);
    if (names_[c].empty()) refuse(": column ", c + 1, " of ", names_.size(), " has no name; give it one");
    auto [first, added] = places.emplace(names_[c], c);
    if (!added)
      refuse(": columns ", first->second + 1, " and ", c + 1, " are both named '", shortened(names_[c]),
             "'; rename one of them");
  }
}

size_t TableReader::find(const std::string& name, const char* option) const {
  auto found = std::ranges::find(names_, name);
  if (found != names_.end()) return size_t(found - names_.begin());
  std::string near = train::nearest(name, names_), all;
  for (const std::string& each : names_) all += (all.empty() ? "'" : ", '") + each + "'";
  std::string hint = near.empty() ? "." : "; did you mean '" + near + "'?";
  if (names_.size() == 1) hint = "; is delimiter '" + std::string(1, options_.delimiter) + "' right?";
  fail("'", options_.path, "' has no column '", shortened(name), "' (", option, ")", hint, " Its columns are ",
       shortened(all));
}

void TableReader::read_row() {
  if (reader_.size() != names_.size())
    refuse(": there are ", reader_.size(), " cells, and ", names_.size(),
           " columns are named; mend the row: a cell with a delimiter in it stands in quotes");
  for (size_t column : used_) table_.inputs.push_back(number(column));
  table_.targets.push_back(options_.kind == TargetKind::classes ? label() : number(target_));
}

double TableReader::number(size_t column) const {
  double value = number_of(reader_[column]);
  if (std::abs(value) <= double(std::numeric_limits<float>::max())) return value;
  std::string cell = shortened(std::string(reader_[column])), name = shortened(names_[column]);
  if (cell.empty())
    refuse(", column '", name, "': the cell is empty; fill it in, leave the row out, or drop the column");
  if (!std::isnan(value) && cell.find_first_of("0123456789") != std::string::npos)
    refuse(", column '", name, "': ", cell, " is too large or too small for f32; scale the column, or drop it");
  refuse(", column '", name, "': '", cell,
         "' is no finite number (such as -1.5 or 2e3); fill in what is missing, write ",
         "numbers for texts, or drop the column");
}

double TableReader::label() {
  std::string label(reader_[target_]);
  if (label.empty()) refuse(", column '", shortened(names_[target_]), "': the label is empty; fill it in");
  check_text(target_, label);
  return labels_.emplace(label, double(labels_.size())).first->second;
}

// Predictions show bytes that are no character as one sign, whatever they are: two texts would look the same.
void TableReader::check_text(size_t column, std::string_view text) const {
  if (text::valid_utf8(text) < text.size())
    refuse(", column ", column + 1, ": '", shortened(text::whole_characters(text)),
           "' is no UTF-8; save the file in UTF-8");
}

// Numbers by their value, texts by their bytes.
void TableReader::order_labels() {
  bool numbers = std::ranges::all_of(labels_, [](const auto& label) { return std::isfinite(number_of(label.first)); });
  for (const auto& [label, number] : labels_) table_.classes.push_back(label);
  if (numbers) std::ranges::stable_sort(table_.classes, {}, number_of);
  for (size_t i = 1; numbers && i < table_.classes.size(); ++i)
    SG_CHECK(number_of(table_.classes[i - 1]) < number_of(table_.classes[i]), "'", options_.path, "', column '",
             names_[target_], "': labels '", table_.classes[i - 1], "' and '", table_.classes[i],
             "' are the same number; write it in one way");
  SG_CHECK(labels_.size() >= 2, "'", options_.path, "', column '", names_[target_], "': every row has label '",
           shortened(table_.classes[0]), "'; two classes are the least");
  std::vector<double> place(labels_.size());
  for (size_t i = 0; i < place.size(); ++i) place[size_t(labels_[table_.classes[i]])] = double(i);
  for (double& target : table_.targets) target = place[size_t(target)];
}

}  // namespace

CsvTable read_table(const CsvOptions& options) { return TableReader(options).read(); }

}  // namespace shardgrad::data
