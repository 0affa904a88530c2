#include <shardgrad/autograd/match.h>

#include <array>
#include <locale>
#include <numeric>
#include <regex>

#include <shardgrad/core/error.h>

namespace shardgrad {

bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {  // let the last star take one more character
      p = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

namespace {

// A facet remembers in itself what it has narrowed and widened, without a lock, and all threads' expressions read the
// program's: each list of expressions has one of its own, which knows every character before another thread sees it.
std::locale own_locale() {
  auto* facet = new std::ctype<char>;
  std::locale own(std::locale::classic(), facet);
  std::array<char, 256> characters, converted;
  std::iota(characters.begin(), characters.end(), char(0));
  const char *begin = characters.data(), *end = begin + characters.size();
  facet->narrow(begin, end, 0, converted.data());
  facet->widen(begin, end, converted.data());
  return own;
}

}  // namespace

struct Expressions::Compiled {
  std::vector<std::regex> all;
};

Expressions::Expressions(const char* call, const std::vector<std::string>& expressions) {
  auto compiled = std::make_shared<Compiled>();
  std::locale own = own_locale();
  for (const std::string& expression : expressions) {
    try {
      std::regex& one = compiled->all.emplace_back();
      one.imbue(own);
      one.assign(expression);
    } catch (const std::regex_error& error) {
      fail(call, ": '", expression, "' is no regular expression: ", error.what());
    }
  }
  compiled_ = std::move(compiled);
}

bool Expressions::match(size_t i, const std::string& name) const { return std::regex_match(name, compiled_->all[i]); }

}  // namespace shardgrad
