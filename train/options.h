#pragma once
// Settings of a struct as a list, each with its name, what it may be and what it means: read, written and told of by
// whoever has the list. A struct says its own:
//
//     struct NetOptions {
//       int64_t width = 64;
//       void list(train::OptionList& options) { options.add("width", width, "units of a layer", {.low = 1}); }
//     };

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace shardgrad::train {

/// What a value (each value, for a list) may be.
struct Rule {
  std::vector<std::string> choices{};  ///< texts
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above_low = false, below_high = false;  ///< the limit itself is excluded
  bool may_be_empty = false;                   ///< a text
  size_t length = 0;                           ///< exact length of a list; 0: any
  size_t least_length = 0;                     ///< of a list
};

/// The value of `key` as JSON text; a number that is not finite is "inf" or "nan", which no option takes. Throws
/// Error(input) naming the key for a text that is no UTF-8.
template <class T> std::string checked_json(const std::string& key, const T& value);

/// One setting, of the struct that has listed it, while that lives.
struct Option {
  std::string key, meaning;
  std::string expected;  ///< "an integer from 1 to 10", "one of a, b", …
  /// Takes a value as JSON text; false when it is not what is expected, and then nothing is changed.
  std::function<bool(const std::string& json)> assign;
  /// The value as checked_json has it; empty for one that is unset.
  std::function<std::string()> json;
};

/// Something that is chosen by name (registry.h), and those of its options that are not the default, as JSON texts.
struct Component {
  std::string name;
  std::map<std::string, std::string> options{};
};

class OptionList {
 public:
  /// T: bool, int, int64_t, double, std::string, a vector of the last three, or std::optional of bool, int64_t,
  /// std::string or DType.
  template <class T> void add(std::string key, T& field, std::string meaning, const Rule& rule = {});
  const Option* find(const std::string& key) const;
  auto begin() const { return options_.begin(); }
  auto end() const { return options_.end(); }

 private:
  std::vector<Option> options_;
};

}  // namespace shardgrad::train
