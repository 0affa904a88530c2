#include <shardgrad/train/settings.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/json_fault.h>

namespace shardgrad::train {

namespace {

constexpr size_t kDeepest = 16;  // open objects and arrays; a setting needs three

// nlohmann's events carry no position, so the text is read through an iterator that counts lines. A key's event comes
// right after its closing quote, and the values of a key are placed at the key.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *line_ += *at_++ == '\n';
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

class Flattener : public nlohmann::json_sax<nlohmann::json> {
 public:
  Flattener(const std::string& path, std::string_view text, const int& line, std::vector<std::string>& faults)
      : path_(path), text_(text), line_(line), faults_(faults) {}
  std::vector<Setting> settings;

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(v); }
  bool binary(binary_t&) override { return value(nullptr); }
  bool key(string_t& name) override {
    if (arrays_.empty()) {
      name_ = name;
      place_ = path_ + ":" + std::to_string(line_);
    }
    return true;
  }
  bool start_object(size_t) override {
    if (!arrays_.empty()) return refuse("an object is not possible here");
    if (groups_.size() == kDeepest) return refuse_depth();
    if (opened_) groups_.push_back(full_name());
    opened_ = true;
    return true;
  }
  bool end_object() override {
    if (!groups_.empty()) groups_.pop_back();
    return true;
  }
  bool start_array(size_t) override {
    if (arrays_.size() == kDeepest) return refuse_depth();
    arrays_.push_back(nlohmann::json::array());
    return true;
  }
  bool end_array() override {
    nlohmann::json done = std::move(arrays_.back());
    arrays_.pop_back();
    return value(std::move(done));
  }
  bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception& error) override {
    JsonFault fault = json_fault(text_, position, error.what());
    std::string what = error.id == 406 ? "the number " + shortened(token) + " is not finite" : fault.why;
    if (follows_comma(position))
      what = concat("there is a comma before '", text_[position - 1], "', and nothing after it; remove it");
    faults_.push_back(concat(path_, ":", fault.line, ": ", shortened(what)));
    return false;
  }

 private:
  std::string full_name() const { return groups_.empty() ? name_ : groups_.back() + "." + name_; }
  // Whether the sign that the parser stopped at closes a list or an object, and the one before it is a comma.
  bool follows_comma(size_t position) const {
    if (position == 0 || position > text_.size()) return false;
    char last = text_[position - 1];
    size_t before = text_.substr(0, position - 1).find_last_not_of(" \t\r\n");
    return (last == '}' || last == ']') && before != std::string_view::npos && text_[before] == ',';
  }
  bool refuse(const char* why) {
    faults_.push_back(concat(path_, ":", line_, ": ", why));
    return false;
  }
  bool refuse_depth() { return refuse("this is nested deeper than any setting"); }
  bool value(nlohmann::json v) {
    if (!arrays_.empty()) {
      arrays_.back().push_back(std::move(v));
      return true;
    }
    if (!opened_) return refuse("the file must hold one object: {\"key\": value, …}");
    auto [first, added] = places_.emplace(full_name(), place_);
    if (added)
      settings.push_back({full_name(), v.dump(), place_});
    else
      faults_.push_back(concat(place_, ": ", shortened(full_name()), " is given twice; first at ", first->second));
    return true;
  }

  std::string path_;
  std::string_view text_;
  const int& line_;
  std::vector<std::string>& faults_;
  bool opened_ = false;
  std::string name_, place_;
  std::vector<std::string> groups_;     // full names of the open objects
  std::vector<nlohmann::json> arrays_;  // open arrays
  std::map<std::string, std::string> places_;
};

}  // namespace

std::vector<Setting> read_settings(const std::string& path, std::vector<std::string>& faults, const FileKind& kind) {
  std::string text;
  try {
    text = read_file(path, kind);
  } catch (const Error& error) {
    faults.push_back(concat("the configuration: ", error.what()));
    return {};
  }
  if (size_t at = text.find('\0'); at != std::string::npos) {  // nlohmann takes it for the end
    auto line = 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n');
    faults.push_back(concat(path, ":", line, ": there is a NUL byte, which no text has"));
    return {};
  }
  int line = 1;
  Flattener flattener(path, text, line, faults);
  constexpr bool kStrict = true, kIgnoreComments = true;
  nlohmann::json::sax_parse(CountingIterator(text.data(), &line), CountingIterator(text.data() + text.size(), &line),
                            &flattener, nlohmann::json::input_format_t::json, kStrict, kIgnoreComments);
  return std::move(flattener.settings);
}

Setting parse_setting(const std::string& text, std::vector<std::string>& faults) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    faults.push_back(concat("--set ", shortened(text), ": write key=value, for example --set optimizer.lr=0.1"));
    return {};
  }
  std::string value = text.substr(equals + 1);
  if (!nlohmann::json::accept(value)) try {
      value = nlohmann::json(value).dump();
    } catch (const nlohmann::json::type_error&) {
      faults.push_back(concat("--set ", shortened(text), ": its value is no UTF-8, as texts are here"));
      return {};
    }
  return {text.substr(0, equals), value, "--set " + shortened(text)};
}

}  // namespace shardgrad::train
