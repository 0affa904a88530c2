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
  if (names && !names->json.starts_with('['))
    faults.push_back(
        concat(names->place, ": model.modules_to_wrap is ", shortened(names->json), ", expected a list of names"));
  if (const Setting* none = find(settings, "model.fsdp_config"); none && none->json != "null")
    faults.push_back(
        concat(none->place, ": model.fsdp_config is ", shortened(none->json), ", expected options, or null"));
  bool shards = std::ranges::any_of(settings, [](const Setting& s) { return s.key.starts_with("model.fsdp_config."); });
  std::vector<Setting> plain;
  for (const Setting& setting : settings)
    if (!is_of_constructor(setting.key)) plain.push_back({inner_key(setting.key), setting.json, setting.place});
  auto add = [&](const char* key, const std::string& json) {
    if (const Setting* own = find(plain, key))
      faults.push_back(concat(own->place, ": ", key, " is what ", kConstructor, " sets; leave one out"));
    plain.push_back({key, json, names->place});
  };
  if (names && again && again->json == "true") add("model.recompute_regex", names->json);
  if (names && shards) add("fsdp.wrap", "\"types\"");
  if (names && shards) add("fsdp.wrap_regex", names->json);
  return plain;
}

}  // namespace shardgrad::train
