#include <shardgrad/autograd/match.h>

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

struct Expressions::Compiled {
  std::vector<std::regex> all;
};

Expressions::Expressions(const char* call, const std::vector<std::string>& expressions) {
  auto compiled = std::make_shared<Compiled>();
  for (const std::string& expression : expressions) {
    try {
      compiled->all.emplace_back(expression);
    } catch (const std::regex_error& error) {
      fail(call, ": '", expression, "' is no regular expression: ", error.what());
    }
  }
  compiled_ = std::move(compiled);
}

bool Expressions::match(size_t i, const std::string& name) const { return std::regex_match(name, compiled_->all[i]); }

}  // namespace shardgrad
