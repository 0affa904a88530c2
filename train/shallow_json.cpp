#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {

// Counted before parsing: a parser that is asked about each value looks, at the end of each, through all that stands
// before it in the same list.
static bool is_shallow(std::string_view text) {
  constexpr int kDeepest = 8;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if ((c == '[' || c == '{') && ++depth > kDeepest) return false;
    if (c == ']' || c == '}') --depth;
  }
  return true;
}

nlohmann::ordered_json parse_shallow(const std::string& text) {
  using Json = nlohmann::ordered_json;
  return is_shallow(text) ? Json::parse(text, nullptr, false) : Json(Json::value_t::discarded);
}

int64_t whole(const nlohmann::ordered_json& value) {
  SG_CHECK(value.is_number_integer(), value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
           " is no whole number");
  return value.get<int64_t>();
}

}  // namespace shardgrad::train
