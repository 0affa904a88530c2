#include <cctype>

#include <shardgrad/core/error.h>
#include <shardgrad/train/text/pattern.h>

namespace shardgrad::text {
namespace {

// Unicode's white space. PCRE2's own \s has U+180E, too.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern) {}
  std::string run() {
    while (at_ < pattern_.size()) {
      char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else {
        follow(c);
        out_ += c;
        ++at_;
      }
    }
    return out_;
  }

 private:
  // Where we are: in a class or not.
  void follow(char c) {
    if (in_class_) {
      SG_CHECK(c != '[' && pattern_.substr(at_, 2) != "&&",
               "its pattern has a class within a class, which is not known here");
      bool first = at_ == class_begin_ || (at_ == class_begin_ + 1 && pattern_[class_begin_] == '^');
      in_class_ = c != ']' || first;
    } else if (c == '[') {
      in_class_ = true;
      class_begin_ = at_ + 1;
    } else if (c == '}') {
      count_end_ = at_ + 1;
    } else if (c == '+' && at_ > 0 && at_ == count_end_) {  // possessive there, a repetition here
      fail("its pattern has '}+', which is not known here: write (?:…{m,n})+, or leave the + out");
    }
  }
  void escape() {
    SG_CHECK(at_ + 1 < pattern_.size(), "its pattern ends with '\\'");
    char c = pattern_[at_ + 1];
    if (c == 's' || (c == 'S' && !in_class_)) {
      out_ += in_class_ ? std::string(kSpaces) : concat(c == 's' ? "[" : "[^", kSpaces, "]");
    } else {
      bool known = !std::isalnum(uint8_t(c)) || std::string_view("pPdDrntfx").find(c) != std::string_view::npos;
      SG_CHECK(known, "its pattern has '\\", c, "', which is not known here");
      bool long_name = pattern_.substr(at_ + 2, 1) == "{" && std::string_view("pPx").find(c) != std::string_view::npos;
      size_t end = long_name ? pattern_.find('}', at_) : at_ + 1;
      SG_CHECK(end != std::string_view::npos, "its pattern has a '\\", c, "{' without its '}'");
      out_ += pattern_.substr(at_, end + 1 - at_);
      at_ = end - 1;
    }
    at_ += 2;
  }

  std::string_view pattern_;
  std::string out_;
  size_t at_ = 0, class_begin_ = 0, count_end_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string to_pcre2(std::string_view pattern) { return Translation(pattern).run(); }

std::string literally(std::string_view text) {
  std::string pattern;
  for (char c : text) {
    if (uint8_t(c) < 0x80 && !std::isalnum(uint8_t(c))) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace shardgrad::text
