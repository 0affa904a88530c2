#include <shardgrad/train/preset.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/fsdp/setup/config.h>

namespace shardgrad::train {
namespace {

// What a key is given last; null when it is not given.
nlohmann::json value_of(const std::vector<Setting>& given, const char* key) {
  auto found = std::find_if(given.rbegin(), given.rend(), [&](const Setting& s) { return s.key == key; });
  return found == given.rend() ? nlohmann::json() : nlohmann::json::parse(found->json);
}

// A strategy that nobody knows is refused later.
bool keeps_params(const std::vector<Setting>& given) {
  nlohmann::json strategy = value_of(given, "strategy");
  if (value_of(given, "fsdp.keep_params") == true) return true;
  try {
    return strategy.is_string() &&
           fsdp::Config{.strategy = fsdp::parse_strategy(strategy.get<std::string>())}.keeps_params();
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

std::vector<Setting> settings_of_preset(const std::vector<Setting>& given) {
  nlohmann::json preset = value_of(given, "preset"), device = value_of(given, "device"),
                 autocast = value_of(given, "autocast");
  if (preset != "memory" && preset != "speed") return {};
  bool saves = preset == "memory", on_gpu = !device.is_null() && device != "cpu";
  std::vector<Setting> settings;
  auto set = [&](const char* key, const char* json) { settings.push_back({key, json, "preset"}); };
  set("strategy", saves ? "\"zero3\"" : "\"zero2\"");
  if (saves) set("fsdp.prefetch", "0");
  if (saves && on_gpu && !keeps_params(given)) set("fsdp.move_params_to_cpu", "true");
  if (on_gpu && (autocast.is_null() || autocast == "off")) set("fsdp.param_dtype", "\"bf16\"");
  return settings;
}

}  // namespace shardgrad::train
