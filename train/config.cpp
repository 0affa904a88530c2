#include <shardgrad/train/config.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/train/config_fields.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/nearest.h>
#include <shardgrad/train/settings.h>

namespace shardgrad::train {

namespace {

using Json = nlohmann::ordered_json;

template <class T> constexpr bool kIsList = false;
template <class T> constexpr bool kIsList<std::vector<T>> = true;
using fsdp::kIsOptional;
using ChosenDType = std::optional<DType>;
constexpr const char* kOwn = "own";  // an unset dtype

template <class T> constexpr bool kIsInteger = std::is_same_v<T, int64_t> || std::is_same_v<T, int>;

template <class T> std::string range_text(const char* noun, const Rule& rule) {
  if (std::isinf(rule.low) && std::isinf(rule.high)) return noun;
  std::string low = concat(rule.above_low ? "above " : "from ", rule.low);
  if (std::isinf(rule.high)) return concat(noun, " ", rule.above_low ? low : concat(rule.low, " or more"));
  return concat(noun, " ", low, rule.below_high ? " to below " : " to ", T(rule.high));
}

// "a number above 0", "one of cpu, cuda", …
template <class T> std::string expected(const Rule& rule) {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (kIsInteger<T>) return range_text<T>("an integer", rule);
  if constexpr (std::is_same_v<T, ChosenDType>) {
    std::string list = concat("one of ", kOwn);
    for (DType dtype : fsdp::kDTypes) list += concat(", ", dtype);
    return list;
  } else if constexpr (kIsOptional<T>) {
    return expected<typename T::value_type>(rule);
  }
  if constexpr (std::is_same_v<T, double>) return range_text<T>("a finite number", rule);
  if constexpr (std::is_same_v<T, std::string>) {
    std::string list;
    for (const char* choice : rule.choices) list += concat(list.empty() ? "one of " : ", ", choice);
    return !list.empty() ? list : rule.may_be_empty ? "a text" : "a text that is not empty";
  }
  if constexpr (kIsList<T>) {
    std::string count = rule.length ? concat("a list of ", rule.length) : "a list";
    return concat(count, ", each ", expected<typename T::value_type>(rule));
  }
}

bool in_range(double value, const Rule& rule) {
  return std::isfinite(value) && (rule.above_low ? value > rule.low : value >= rule.low) &&
         (rule.below_high ? value < rule.high : value <= rule.high);
}

bool assign_dtype(ChosenDType& field, const Json& value) {
  if (value == kOwn) field.reset();
  auto same = [&](DType dtype) { return value == name_of(dtype); };
  auto found = std::ranges::find_if(fsdp::kDTypes, same);
  if (found != std::end(fsdp::kDTypes)) field = *found;
  return value == kOwn || found != std::end(fsdp::kDTypes);
}

/// Sets `field` from JSON; false when the value is not what the rule allows.
template <class T> bool assign(T& field, const Json& value, const Rule& rule) {
  if constexpr (std::is_same_v<T, ChosenDType>) {
    return assign_dtype(field, value);
  } else if constexpr (kIsOptional<T>) {
    return assign(field.emplace(), value, rule);
  } else if constexpr (kIsList<T>) {
    if (!value.is_array() || (rule.length && value.size() != rule.length)) return false;
    T list;
    for (const Json& element : value)
      if (!assign(list.emplace_back(), element, rule)) return false;
    field = std::move(list);
    return true;
  } else {
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) return false;
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.is_string()) return false;
      auto same = [&](const char* choice) { return value.get<std::string>() == choice; };
      if (rule.choices.size() ? std::none_of(rule.choices.begin(), rule.choices.end(), same)
                              : value == "" && !rule.may_be_empty)
        return false;
    } else {
      bool integer = value.is_number_integer() || value.is_number_unsigned();
      if (!value.is_number() || (kIsInteger<T> && !integer)) return false;
      if (!in_range(value.get<double>(), rule) || (integer && value.get<double>() >= 0x1p63)) return false;
    }
    field = value.get<T>();
    return true;
  }
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

void apply(Config& config, const Setting& setting, std::vector<std::string>& faults) {
  bool known = apply_kernel(config, setting, faults);
  visit_fields(config, [&](const std::string& key, auto& field, const Rule& rule, const char*) {
    if (setting.key != key) return;
    known = true;
    if (assign(field, Json::parse(setting.json), rule)) return;
    using T = std::remove_reference_t<decltype(field)>;
    const char* remedy = setting.json == "\"\"" ? "; leave it out for the default" : "";
    faults.push_back(
        concat(setting.place, ": ", key, " is ", shortened(setting.json), ", expected ", expected<T>(rule), remedy));
  });
  if (known) return;
  std::string key = shortened(setting.key), meant = nearest_key(key);
  faults.push_back(concat(setting.place, ": unknown key '", key, "'; ",
                          meant.empty() ? "" : concat("did you mean '", meant, "'? ("),
                          "`shardgrad train --keys` lists all", meant.empty() ? "" : ")"));
}

// To what a key means nothing beside the other settings, and what to do; empty for one that has an effect.
std::string why_idle(const Config& config, const std::string& key) {
  auto unless = [](const std::string& to, const char* other) { return concat(to, "; remove it or change ", other); };
  const auto& o = config.optimizer;
  bool of_sgd = key == "optimizer.momentum" || key == "optimizer.nesterov";
  bool of_adam = key == "optimizer.betas" || key == "optimizer.eps";
  if (o.name == "sgd" ? of_adam : of_sgd) return unless(o.name, "optimizer.name");
  if (key == "schedule.final" && config.schedule.name == "constant")
    return unless("a constant schedule", "schedule.name");
  if (key == "fsdp.wrap_numel" && config.fsdp.wrap == "children")
    return unless("units that are the model's children", "fsdp.wrap");
  fsdp::Config sharding = config.fsdp.options;
  sharding.strategy = fsdp::parse_strategy(config.strategy);
  if (key == "fsdp.prefetch_bytes" && sharding.prefetch == 0) return unless("a prefetch of 0 units", "fsdp.prefetch");
  if (key == "fsdp.bucket_bytes" && !sharding.keeps_params())
    return concat(config.strategy,
                  ", which reduces a unit's gradients together; remove it, or choose units (fsdp.wrap)");
  return "";
}

// Settings that would silently do nothing, or that only fail together.
void check_together(const Config& config, const std::vector<Setting>& settings, std::vector<std::string>& faults) {
  for (const Setting& setting : settings)
    if (std::string why = why_idle(config, setting.key); !why.empty())
      faults.push_back(concat(setting.place, ": ", setting.key, " means nothing to ", why));
  if (config.model.layers.size() < 2)
    faults.push_back("model.layers needs at least two widths: those of the input and the output");
  if (config.optimizer.nesterov && config.optimizer.momentum == 0)
    faults.push_back("optimizer.nesterov needs a momentum above 0");
  if (config.name.find('/') != std::string::npos || config.name[0] == '.')
    faults.push_back(concat("name is '", shortened(config.name), "'; it names a folder: no '/', no leading '.'"));
}

std::vector<Setting> gather_settings(const std::string& path, const std::vector<std::string>& overrides,
                                     std::vector<std::string>& faults) {
  std::vector<Setting> settings = read_settings(path, faults);
  std::set<std::string> given;
  for (const std::string& text : overrides) {
    Setting setting = parse_setting(text, faults);
    if (setting.key.empty()) continue;
    if (!given.insert(setting.key).second)
      faults.push_back(concat(setting.place, ": ", shortened(setting.key), " is given twice on the command line"));
    settings.push_back(std::move(setting));
  }
  return settings;
}

std::string lines_of(const std::vector<std::string>& faults) {
  constexpr size_t kMost = 50;
  std::string lines;
  for (size_t i = 0; i < std::min(kMost, faults.size()); ++i) lines += (i == 0 ? "" : "\n") + faults[i];
  return faults.size() > kMost ? concat(lines, "\n… and ", faults.size() - kMost, " more") : lines;
}

// Null: an option that is unset.
template <class T> Json json_of(const T& field) {
  if constexpr (std::is_same_v<T, ChosenDType>)
    return field ? name_of(*field) : kOwn;
  else if constexpr (kIsOptional<T>)
    return field ? Json(*field) : Json();
  else
    return field;
}

Json as_json(const Config& config) {
  Json all = Json::object();
  visit_fields(config, [&](const std::string& key, const auto& field, const Rule&, const char*) {
    Json value = json_of(field);
    if (value.is_null() || !why_idle(config, key).empty()) return;
    size_t dot = key.find('.');
    if (dot == std::string::npos)
      all[key] = value;
    else
      all[key.substr(0, dot)][key.substr(dot + 1)] = value;
  });
  if (!config.kernels.empty()) all["kernels"] = config.kernels;
  return all;
}

}  // namespace

// As a whole, by its last part ("lr"), and by words of its meaning ("learning_rate").
std::string nearest_key(const std::string& word) {
  std::string plain = word.substr(word.rfind('.') + 1), best;
  std::ranges::replace(plain, '_', ' ');
  std::optional<size_t> least;
  auto consider = [&](const std::string& key, std::optional<size_t> found) {
    if (!found || (least && *least <= *found)) return;
    least = found;
    best = key;
  };
  const Config defaults;
  visit_fields(defaults, [&](const std::string& key, const auto&, const Rule&, std::string_view meaning) {
    consider(key, distance(word, key));
    consider(key, distance(word, key.substr(key.rfind('.') + 1)));
    bool told = plain.find(' ') != std::string::npos && meaning.find(plain) != std::string_view::npos;
    consider(key, told ? std::optional<size_t>(1) : std::nullopt);
  });
  return best;
}

Config read_config(const std::string& path, const std::vector<std::string>& overrides) {
  std::vector<std::string> faults;
  std::vector<Setting> settings = gather_settings(path, overrides, faults);
  Config config;
  for (const Setting& setting : settings) apply(config, setting, faults);
  if (faults.empty()) check_together(config, settings, faults);
  SG_CHECK(faults.empty(), lines_of(faults));
  config.strategy = name_of(fsdp::parse_strategy(config.strategy));
  return config;
}

std::string to_json(const Config& config) { return as_json(config).dump(2) + "\n"; }

std::string model_text(const Config& config) { return as_json(config)["model"].dump(); }

std::string to_lines(const Config& config) {
  std::string lines;
  const Json all = as_json(config);
  for (const auto& [key, value] : all.items())
    lines += "  " + key + std::string(key.size() < 13 ? 13 - key.size() : 1, ' ') + value.dump() + "\n";
  return lines;
}

std::string key_table() {
  const Config kDefaults;
  std::string table = "| key | default | may be | meaning |\n|---|---|---|---|\n";
  visit_fields(kDefaults, [&](const std::string& key, const auto& field, const Rule& rule, const char* meaning) {
    using T = std::remove_cvref_t<decltype(field)>;
    Json value = json_of(field);
    std::string shown = value.is_null() ? "unset" : "`" + value.dump() + "`";
    table += concat("| `", key, "` | ", shown, " | ", expected<T>(rule), " | ", meaning, " |\n");
  });
  // No field has this key: apply_kernel() reads it.
  return table +
         "| `kernels.OPERATION` | none | a text | which of the kernels offered for OPERATION is used in the place of "
         "the built-in one (docs/extending.md) |\n";
}

}  // namespace shardgrad::train
