#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {

nlohmann::ordered_json parse_shallow(const std::string& text) {
  using Json = nlohmann::ordered_json;
  constexpr int kDeepest = 8;
  bool shallow = true;
  auto look = [&](int depth, Json::parse_event_t, Json&) { return shallow = shallow && depth < kDeepest; };
  Json json = Json::parse(text, look, false);
  return shallow ? json : Json(Json::value_t::discarded);
}

int64_t whole(const nlohmann::ordered_json& value) {
  SG_CHECK(value.is_number_integer(), value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
           " is no whole number");
  return value.get<int64_t>();
}

}  // namespace shardgrad::train
