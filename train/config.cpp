#include <shardgrad/train/config.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/train/aliases.h>
#include <shardgrad/train/config_check.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/hf/component.h>
#include <shardgrad/train/keys.h>
#include <shardgrad/train/preset.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/settings.h>
#include <shardgrad/train/synonyms.h>

namespace shardgrad::train {

namespace {

using Json = nlohmann::ordered_json;

Component& component_of(Config& config, std::string_view kind) {
  return kind == "data" ? config.data : kind == "model" ? config.model : config.task;
}
const Component& component_of(const Config& config, std::string_view kind) {
  return component_of(const_cast<Config&>(config), kind);
}

std::string unexpected(const Setting& setting, const Option& option) {
  const char* remedy = setting.json == "\"\"" ? "; leave it out for the default" : "";
  return concat(setting.place, ": ", setting.key, " is ", shortened(setting.json), ", expected ", option.expected,
                remedy);
}

// "kernels.OPERATION": which of the kernels offered for it. That there are such is known when the libraries are loaded.
bool apply_kernel(Config& config, const Setting& setting, std::vector<std::string>& faults) {
  constexpr std::string_view kPrefix = "kernels.";
  if (!setting.key.starts_with(kPrefix)) return false;
  Json value = Json::parse(setting.json);
  if (value.is_string())
    config.kernels[setting.key.substr(kPrefix.size())] = value.get<std::string>();
  else
    faults.push_back(
        concat(setting.place, ": ", shortened(setting.key), " is ", shortened(setting.json), ", expected a text"));
  return true;
}

// Whose option a key is, when that one is not chosen; empty for other keys.
std::string owner_elsewhere(const Config& config, const std::string& key) {
  std::string kind = kind_of(key);
  if (kind.empty()) return "";
  std::string inner = key.substr(kind.size() + 1), chosen = component_of(config, kind).name;
  if (inner == "name" || config.registry->options(kind, {chosen}).list.find(inner)) return "";
  for (const std::string& name : config.registry->names(kind))
    if (config.registry->options(kind, {name}).list.find(inner)) return name;
  return "";
}

std::string unknown_key(const Config& config, const Setting& setting) {
  std::string key = shortened(setting.key), meant = nearest_key(key, config);
  auto chosen = [&](const std::string& of) {
    return concat(kind_of(of), ".name is ", component_of(config, kind_of(of)).name);
  };
  if (std::string owner = owner_elsewhere(config, setting.key); !owner.empty())
    return concat(setting.place, ": ", key, " is an option of ", owner, ", but ", chosen(setting.key));
  std::string front = concat(setting.place, ": unknown key '", key, "'; ");
  if (meant.empty()) return concat(front, "`shardgrad train --keys` lists all");
  if (meant.starts_with(key + "."))
    return concat(setting.place, ": '", key, "' is a group of keys; did you mean '", meant, "', in a file \"", key,
                  "\": {\"", meant.substr(key.size() + 1), "\": …}? (`shardgrad train --keys` lists all)");
  const Synonym* synonym = synonym_of(key);
  std::string note = synonym && meant == synonym->key ? synonym->note : "";
  if (std::string owner = owner_elsewhere(config, meant); !owner.empty())
    note = concat("an option of ", owner, ", and ", chosen(meant));
  return concat(front, "did you mean '", meant, "'? (", note, note.empty() ? "" : "; ",
                "`shardgrad train --keys` lists all)");
}

// On a command line 2020 is a text where one is expected: no shell keeps the quotes of "2020".
bool assign(const Option& option, const Setting& setting) {
  if (option.assign(setting.json)) return true;
  bool of_command_line = setting.place.starts_with("--set ");
  return of_command_line && Json::parse(setting.json).is_number() && option.assign(Json(setting.json).dump());
}

// An option of the data set, model or task that is chosen.
void apply_to_component(Config& config, const Setting& setting, std::vector<std::string>& faults) {
  std::string kind = kind_of(setting.key), key = setting.key.substr(kind.empty() ? 0 : kind.size() + 1);
  Component& component = component_of(config, kind);
  OptionSet set;
  if (!kind.empty()) set = config.registry->options(kind, {component.name});
  const Option* option = set.list.find(key);
  if (!option)
    faults.push_back(unknown_key(config, setting));
  else if (!assign(*option, setting))
    faults.push_back(unexpected(setting, *option));
  else
    component.options[key] = option->json();
}

// The names come first: they say which options there are. False: one that decides which keys mean something is refused.
bool apply_all(Config& config, const std::vector<Setting>& settings, std::vector<std::string>& faults) {
  OptionList options = list_options(config);
  std::vector<const Setting*> of_components;
  std::set<std::string> unknown;  // of which nobody knows what options there are
  bool chosen = true;
  for (const Setting& setting : settings) {
    const Option* option = options.find(setting.key);
    bool refused = option && !assign(*option, setting);
    if (refused) faults.push_back(unexpected(setting, *option));
    if (refused && chooses(setting.key)) chosen = false;
    if (std::string kind = kind_of(setting.key); refused && setting.key == kind + ".name") unknown.insert(kind);
    if (!option && !apply_kernel(config, setting, faults)) of_components.push_back(&setting);
  }
  for (const Setting* setting : of_components)
    if (!unknown.contains(kind_of(setting->key))) apply_to_component(config, *setting, faults);
  return chosen;
}

// How long a run is, is one thing with two keys: the command line's takes the place of the file's.
void forget_other_length(std::vector<Setting>& of_file, const std::vector<Setting>& of_command_line) {
  auto gives = [&](const char* key) {
    return std::ranges::any_of(of_command_line, [&](const Setting& s) { return s.key == key && s.json != "0"; });
  };
  bool steps = gives("steps"), epochs = gives("epochs");
  if (steps == epochs) return;
  std::erase_if(of_file, [&](const Setting& setting) { return setting.key == (steps ? "epochs" : "steps"); });
}

OurSettings gather_settings(const std::string& path, const std::vector<std::string>& overrides,
                            std::vector<std::string>& faults) {
  std::vector<Setting> of_file, of_command_line;
  if (!path.empty()) of_file = read_settings(path, faults);
  std::set<std::string> given;
  for (const std::string& text : overrides) {
    Setting setting = parse_setting(text, faults);
    if (setting.key.empty()) continue;
    if (!given.insert(setting.key).second)
      faults.push_back(concat(setting.place, ": ", shortened(setting.key), " is given twice on the command line"));
    of_command_line.push_back(std::move(setting));
  }
  forget_other_length(of_file, of_command_line);
  return in_our_names(of_file, of_command_line, faults);
}

std::string lines_of(const std::vector<std::string>& faults) {
  constexpr size_t kMost = 50;
  std::string lines;
  for (size_t i = 0; i < std::min(kMost, faults.size()); ++i) lines += (i == 0 ? "" : "\n") + faults[i];
  return faults.size() > kMost ? concat(lines, "\n… and ", faults.size() - kMost, " more") : lines;
}

// A default that JSON has no number for, such as an infinity, is null.
void put(Json& all, const std::string& key, const std::string& json) {
  size_t dot = key.find('.');
  Json value = Json::parse(json, nullptr, false);
  (dot == std::string::npos ? all[key] : all[key.substr(0, dot)][key.substr(dot + 1)]) =
      value.is_discarded() ? Json() : value;
}

Json as_json(const Config& given) {
  Json all = Json::object();
  Config config = given;  // an option may be assigned through its list
  for (const Option& option : list_options(config)) {
    std::string json = option.json(), kind = kind_of(option.key);
    if (json.empty() || !why_idle(config, option.key).empty()) continue;
    put(all, option.key, json);
    if (kind.empty() || option.key != kind + ".name") continue;
    for (const Option& inner : config.registry->options(kind, component_of(config, kind)).list)
      if (std::string value = inner.json(); !value.empty()) put(all, kind + "." + inner.key, value);
  }
  if (!config.kernels.empty()) all["kernels"] = config.kernels;
  return all;
}

// A run's folder is used from other folders, too. What is not there the loader finds in its own.
void make_absolute(std::vector<std::string>& libraries) {
  std::error_code unknown;
  for (std::string& library : libraries)
    if (std::filesystem::exists(library, unknown)) library = std::filesystem::absolute(library).lexically_normal();
}

std::shared_ptr<const Registry> with_libraries(const Registry& registry, const std::vector<Setting>& settings) {
  auto known = std::make_shared<Registry>(registry);
  Config named;
  for (const Setting& setting : settings)
    if (setting.key == "libraries") list_options(named).find("libraries")->assign(setting.json);
  for (const std::string& library : named.libraries) known->load(library);
  return known;
}

}  // namespace

std::shared_ptr<const Registry> built_in_registry() { return std::make_shared<const Registry>(); }

Config read_config(const std::string& path, const std::vector<std::string>& overrides, const Registry& registry) {
  std::vector<std::string> faults;
  auto [settings, ranks] = gather_settings(path, overrides, faults);
  Config config;
  if (ranks) config.ranks = {std::stoll(ranks->json), concat(ranks->place, ": ", ranks->key, " is ", ranks->json)};
  config.registry = with_libraries(registry, settings);
  apply_all(config, settings_of_preset(settings), faults);
  size_t faults_before = faults.size();
  apply_all(config, hf::settings_of_folder(settings, faults), faults);
  bool folder_is_known = faults.size() == faults_before, chosen = apply_all(config, settings, faults);
  config.model_from.reset();
  make_absolute(config.libraries);
  if (chosen && folder_is_known) check_together(config, settings, faults);
  SG_CHECK(faults.empty(), lines_of(faults));
  config.strategy = name_of(fsdp::parse_strategy(config.strategy));
  return config;
}

std::string to_json(const Config& config) { return as_json(config).dump(2) + "\n"; }

std::string model_text(const Config& config) { return as_json(config)["model"].dump(); }

std::string to_lines(const Config& given) {
  Config config = given, defaults;
  defaults.registry = given.registry;
  std::string lines;
  auto add = [&](const std::string& key, const std::string& value) {
    lines += concat("  ", key, std::string(key.size() < 22 ? 22 - key.size() : 0, ' '), ' ', value, '\n');
  };
  auto compare = [&](const std::string& key, const Option& now, const Option* usual) {
    if (now.json() != usual->json() && why_idle(config, key).empty()) add(key, now.json());
  };
  OptionList usual = list_options(defaults);
  for (const Option& option : list_options(config)) {
    compare(option.key, option, usual.find(option.key));
    std::string kind = kind_of(option.key);
    if (kind.empty() || option.key != kind + ".name") continue;
    const Component& chosen = component_of(config, kind);
    OptionSet now = config.registry->options(kind, chosen), before = config.registry->options(kind, {chosen.name});
    for (const Option& inner : now.list) compare(kind + "." + inner.key, inner, before.list.find(inner.key));
  }
  for (const auto& [op, kernel] : config.kernels) add("kernels." + op, Json(kernel).dump());
  return lines;
}

}  // namespace shardgrad::train
