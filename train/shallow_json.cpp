#include <shardgrad/train/shallow_json.h>

#include <shardgrad/train/json_fault.h>

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

static std::string why_no_object(const std::string& text) {
  using Json = nlohmann::ordered_json;
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return "it is empty";
  if (!is_shallow(text)) return "it is nested deeper than such a file";
  try {
    return Json::parse(text).is_object() ? "" : "it is no JSON object";
  } catch (const Json::parse_error& error) {
    JsonFault fault = json_fault(text, error.byte, error.what());
    if (fault.why.starts_with("unexpected end")) return concat("it ends in the middle, in line ", fault.line);
    return concat("it is no JSON in line ", fault.line, ": ", fault.why);
  } catch (const Json::out_of_range&) {
    return "a number in it is too large";
  }
}

nlohmann::ordered_json read_object(const std::string& path, const FileKind& kind) {
  std::string text = read_file(path, kind);
  nlohmann::ordered_json value = parse_shallow(text);
  if (!value.is_object()) fail("'", path, "' is damaged: ", why_no_object(text));
  return value;
}

// "[json.exception.out_of_range.403] key 'step' not found"
std::string in_words(const std::exception& error) {
  std::string message = error.what();
  size_t end = message.starts_with("[json.") ? message.find("] ") : std::string::npos;
  return end == std::string::npos ? message : message.substr(end + 2);
}

int64_t whole(const nlohmann::ordered_json& value) {
  SG_CHECK(value.is_number_integer(), value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
           " is no whole number");
  return value.get<int64_t>();
}

}  // namespace shardgrad::train
