#include <shardgrad/train/wrapped_modules.h>

#include <algorithm>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train {
namespace {

constexpr const char* kConstructor = "fairscale::with_wrapped_modules";

const Setting* find(const std::vector<Setting>& settings, const std::string& key) {
  auto found = std::ranges::find(settings, key, &Setting::key);
  return found == settings.end() ? nullptr : &*found;
}

// The inner model's settings, and the options of units, under the keys that they have without the constructor.
std::string inner_key(const std::string& key) {
  if (key == "model.model" || key == "model.model.type") return "model.name";
  if (key.starts_with("model.model.")) return "model." + key.substr(std::string("model.model.").size());
  return key.starts_with("model.fsdp_config.") ? key.substr(std::string("model.").size()) : key;
}

bool is_of_constructor(const std::string& key) {
  return key == "model.type" || key == "model.modules_to_wrap" || key == "model.activation_checkpointing" ||
         key == "model.fsdp_config";
}

}  // namespace

std::vector<Setting> without_wrapped_modules(std::vector<Setting> settings, std::vector<std::string>& faults) {
  const Setting* type = find(settings, "model.type");
  if (!type || type->json != concat('"', kConstructor, '"')) return settings;
  const Setting *names = find(settings, "model.modules_to_wrap"),
                *again = find(settings, "model.activation_checkpointing");
  if (!names)
    faults.push_back(concat(type->place, ": ", kConstructor, " needs model.modules_to_wrap, a list of names"));
  if (again && again->json != "true" && again->json != "false")
    faults.push_back(concat(again->place, ": model.activation_checkpointing is ", shortened(again->json),
                            ", expected one of true, false"));
  bool shards = std::ranges::any_of(settings, [](const Setting& s) { return s.key.starts_with("model.fsdp_config."); });
  std::vector<Setting> plain;
  for (const Setting& setting : settings)
    if (!is_of_constructor(setting.key)) plain.push_back({inner_key(setting.key), setting.json, setting.place});
  if (names && again && again->json == "true") plain.push_back({"model.recompute_regex", names->json, names->place});
  if (names && shards) plain.push_back({"fsdp.wrap", "\"types\"", names->place});
  if (names && shards) plain.push_back({"fsdp.wrap_regex", names->json, names->place});
  return plain;
}

}  // namespace shardgrad::train
