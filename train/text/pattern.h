#pragma once
// A regular expression of a tokenizer.json. Hugging Face's `tokenizers` read it by Ruby's rules (Oniguruma); PCRE2
// finds the same matches once pattern_syntax.cpp has written it in its own.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace shardgrad::text {

class Pattern {
 public:
  /// Throws Error(input) for a pattern that is none, or that means something else to PCRE2; Error(missing) in a build
  /// without PCRE2.
  explicit Pattern(const std::string& pattern);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  /// Calls `call(begin, end)` for every match from left to right, but not for an empty one where the last one ended.
  /// Bytes that are no UTF-8 match nothing. From any thread.
  void for_each(std::string_view text, const std::function<void(size_t begin, size_t end)>& call) const;

  /// Whether this build has them.
  static bool available();

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// The pattern as PCRE2 reads it, with Unicode's properties. Throws Error(input) for what has another meaning there.
std::string to_pcre2(std::string_view pattern);
/// A pattern of these letters alone.
std::string literally(std::string_view text);

}  // namespace shardgrad::text
