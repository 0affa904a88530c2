#pragma once
// Tokens that are found in a text before it is cut into words, such as <|endoftext|>.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad::text {

struct AddedToken {
  std::string text;
  uint32_t id = 0;
  bool special = false;
  bool first = false;  ///< looked for in the whole text; the others between those
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Calls `text` for what lies between tokens, `token` for each of them, in order. Of several at one place the longest
  /// is it. Without `parse_special` special ones are text.
  using TakeText = std::function<void(std::string_view text)>;
  using TakeToken = std::function<void(uint32_t id)>;
  void cut(std::string_view text, bool parse_special, const TakeText& take_text, const TakeToken& take_token) const;

 private:
  using Group = std::array<std::vector<AddedToken>, 256>;  // by the first byte, the longest first
  static void cut(std::string_view text, const Group& group, bool parse_special, const TakeText& take_text,
                  const TakeToken& take_token);
  Group first_, then_;
  bool any_first_ = false, any_then_ = false;
};

}  // namespace shardgrad::text
