#include <shardgrad/train/text/added_tokens.h>

#include <algorithm>

namespace shardgrad::text {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  std::ranges::stable_sort(tokens, std::ranges::greater(), [](const AddedToken& token) { return token.text.size(); });
  for (AddedToken& token : tokens) {
    if (token.text.empty()) continue;
    (token.first ? any_first_ : any_then_) = true;
    (token.first ? first_ : then_)[uint8_t(token.text[0])].push_back(std::move(token));
  }
}

// Where a special token is text, so are others within it.
void AddedTokens::cut(std::string_view text, const Group& group, bool parse_special, const TakeText& take_text,
                      const TakeToken& take_token) {
  size_t done = 0, at = 0;
  while (at < text.size()) {
    const std::vector<AddedToken>& here = group[uint8_t(text[at])];
    auto found = std::ranges::find_if(
        here, [rest = text.substr(at)](const AddedToken& token) { return rest.starts_with(token.text); });
    if (found == here.end()) {
      ++at;
      continue;
    }
    if (parse_special || !found->special) {
      if (at > done) take_text(text.substr(done, at - done));
      take_token(found->id);
      done = at + found->text.size();
    }
    at += found->text.size();
  }
  if (done < text.size()) take_text(text.substr(done));
}

void AddedTokens::cut(std::string_view text, bool parse_special, const TakeText& take_text,
                      const TakeToken& take_token) const {
  TakeText rest = [&](std::string_view piece) {
    if (any_then_)
      cut(piece, then_, parse_special, take_text, take_token);
    else if (!piece.empty())
      take_text(piece);
  };
  if (any_first_)
    cut(text, first_, parse_special, rest, take_token);
  else
    rest(text);
}

}  // namespace shardgrad::text
