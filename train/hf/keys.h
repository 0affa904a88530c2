#pragma once
// The keys of a Hugging Face folder's JSON files, asked for one by one. What is there and is not what is asked for is
// refused with file, line and key.

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include <shardgrad/train/settings.h>

namespace shardgrad::train::hf {

class Keys {
 public:
  static constexpr int64_t kMost = 1 << 24;  ///< so that products of two have room in an int64_t
  /// Throws Error(input) with the first fault of a file that cannot be read or is no JSON object.
  explicit Keys(const std::string& path, const FileKind& kind = kModelConfig);

  const std::string& path() const { return path_; }
  /// Whether it has a value other than null; of an object, whether that has any.
  bool has(const std::string& key) const;
  /// The values, or `otherwise` where there is none.
  int64_t integer(const std::string& key, int64_t otherwise, int64_t most = kMost) const;  ///< from 1 to `most`
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  /// As JSON text; "null" where there is none.
  std::string json(const std::string& key) const;
  /// All texts below `key`, by what comes after it: {"b.c": "x"} of {"a": {"b.c": "x", "d": 1}} for "a".
  std::map<std::string, std::string> texts_below(const std::string& key) const;
  /// Throws Error(input): "'DIR/config.json:7': KEY is VALUE; WHY".
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

 private:
  const Setting* find(const std::string& key) const;
  std::string path_;
  std::map<std::string, Setting> settings_;  // by key; nested ones have dots
};

}  // namespace shardgrad::train::hf
