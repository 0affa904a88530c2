#include <shardgrad/train/data/npy_header.h>

#include <charconv>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>

namespace shardgrad::data {
namespace {

class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  NpyHeader parse() {
    NpyHeader header;
    std::set<std::string> seen;
    expect("{");
    while (!accept("}")) {
      std::string key = quoted();
      SG_CHECK(seen.insert(key).second, "its header has '", key, "' twice");
      expect(":");
      value(key, header);
      if (!accept(",")) {
        expect("}");
        break;
      }
    }
    SG_CHECK(seen.size() == 3, "its header lacks one of 'descr', 'fortran_order' and 'shape'");
    skip_spaces();
    SG_CHECK(at_ == text_.size(), "its header goes on after the closing brace");
    return header;
  }

 private:
  void value(const std::string& key, NpyHeader& header) {
    if (key == "descr") {
      SG_CHECK(at_quote(), "its elements are records; save an array of numbers for each of their fields");
      header.descr = quoted();
    } else if (key == "fortran_order") {
      header.fortran_order = truth();
    } else {
      SG_CHECK(key == "shape", "its header has key '", train::shortened(key), "', which the format does not know");
      header.shape = numbers();
    }
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(std::string_view word) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word) {
    SG_CHECK(accept(word), "its header has no '", word, "' at character ", at_, ": ",
             train::shortened(std::string(text_)));
  }
  bool at_quote() {
    skip_spaces();
    return at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"');
  }
  std::string quoted() {
    SG_CHECK(at_quote(), "its header has no text in quotes at character ", at_);
    size_t end = text_.find(text_[at_], at_ + 1);
    SG_CHECK(end != std::string_view::npos, "a quote in its header is not closed");
    std::string inside(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return inside;
  }
  bool truth() {
    if (accept("True")) return true;
    expect("False");
    return false;
  }
  std::vector<int64_t> numbers() {
    std::vector<int64_t> result;
    expect("(");
    while (!accept(")")) {
      skip_spaces();
      int64_t number = 0;
      auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      SG_CHECK(error == std::errc() && number >= 0, "its shape has no count at character ", at_, " of the header");
      at_ = size_t(end - text_.data());
      result.push_back(number);
      if (!accept(",")) {
        expect(")");
        break;
      }
    }
    return result;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text) { return HeaderParser(text).parse(); }

}  // namespace shardgrad::data
