#include <shardgrad/core/environment.h>

#include <algorithm>
#include <cstdlib>

#include <shardgrad/core/error.h>

namespace shardgrad {

static const std::string_view* word_of(const EnvironmentChoice& choice, std::string_view text) {
  return std::ranges::find(choice.words, text);
}

std::string refused(const EnvironmentChoice& choice, std::string_view text) {
  if (text.empty() || word_of(choice, text) != choice.words.end()) return "";
  std::string list;
  for (std::string_view word : choice.words)
    if (!word.empty()) list += concat(word, ", ");
  return concat(choice.variable, " is '", text, "'; choose ", list, "or unset it");
}

std::string_view environment_choice(const EnvironmentChoice& choice) {
  const char* text = std::getenv(choice.variable);
  if (!text || !*text) return {};
  std::string why = refused(choice, text);
  SG_CHECK(why.empty(), why);
  return *word_of(choice, text);
}

}  // namespace shardgrad
