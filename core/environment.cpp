#include <shardgrad/core/environment.h>

#include <cstdlib>

#include <shardgrad/core/error.h>

namespace shardgrad {

std::string_view environment_choice(const char* variable, std::initializer_list<std::string_view> choices) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return {};
  std::string list;
  for (std::string_view choice : choices) {
    if (choice == text) return choice;
    list += concat(choice, ", ");
  }
  fail(variable, " is '", text, "'; choose ", list, "or unset it");
}

}  // namespace shardgrad
