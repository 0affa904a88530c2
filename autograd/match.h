#pragma once
// Names that are chosen by patterns.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad {

/// True when the whole of `name` matches `pattern`: '*' stands for any characters, '?' for one.
bool matches(std::string_view pattern, std::string_view name);

/// Regular expressions (ECMAScript's), of which each is to match the whole of a name.
class Expressions {
 public:
  /// Throws Error(input) naming `call` and the expression for one that is none.
  Expressions(const char* call, const std::vector<std::string>& expressions);
  /// Whether the i-th matches the whole of `name`.
  bool match(size_t i, const std::string& name) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace shardgrad
