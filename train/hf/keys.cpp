#include <shardgrad/train/hf/keys.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train::hf {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Keys::Keys(const std::string& path, const FileKind& kind) : path_(path) {
  std::vector<std::string> faults;
  for (Setting& setting : read_settings(path, faults, kind)) {
    std::string key = setting.key;
    settings_.emplace(std::move(key), std::move(setting));
  }
  SG_CHECK(faults.empty(), faults[0]);
}

const Setting* Keys::find(const std::string& key) const {
  auto found = settings_.find(key);
  return found == settings_.end() || found->second.json == "null" ? nullptr : &found->second;
}

bool Keys::has(const std::string& key) const {
  auto below = settings_.lower_bound(key + ".");
  return find(key) || (below != settings_.end() && below->first.starts_with(key + "."));
}

void Keys::refuse(const std::string& key, const std::string& why) const {
  const Setting* setting = find(key);
  if (!setting) fail(path_, ": ", key, " is missing; ", why);
  fail(setting->place, ": ", key, " is ", shortened(setting->json), "; ", why);
}

int64_t Keys::integer(const std::string& key, int64_t otherwise, int64_t most) const {
  const Setting* setting = find(key);
  if (!setting) return otherwise;
  Json value = Json::parse(setting->json);
  bool fits = value.is_number_integer() && value >= 1 && value <= most;
  if (!fits) refuse(key, concat("it must be an integer from 1 to ", most));
  return value.get<int64_t>();
}

double Keys::number(const std::string& key, double otherwise) const {
  const Setting* setting = find(key);
  if (!setting) return otherwise;
  Json value = Json::parse(setting->json);
  if (!value.is_number()) refuse(key, "it must be a number");
  return value.get<double>();
}

bool Keys::flag(const std::string& key, bool otherwise) const {
  const Setting* setting = find(key);
  if (!setting) return otherwise;
  Json value = Json::parse(setting->json);
  if (!value.is_boolean()) refuse(key, "it must be true or false");
  return value.get<bool>();
}

std::string Keys::text(const std::string& key, const std::string& otherwise) const {
  const Setting* setting = find(key);
  if (!setting) return otherwise;
  Json value = Json::parse(setting->json);
  if (!value.is_string()) refuse(key, "it must be a text");
  return value.get<std::string>();
}

std::string Keys::json(const std::string& key) const {
  const Setting* setting = find(key);
  return setting ? setting->json : "null";
}

std::map<std::string, std::string> Keys::texts_below(const std::string& key) const {
  std::map<std::string, std::string> texts;
  std::string prefix = key + ".";
  for (auto at = settings_.lower_bound(prefix); at != settings_.end() && at->first.starts_with(prefix); ++at)
    texts[at->first.substr(prefix.size())] = text(at->first, "");
  return texts;
}

}  // namespace shardgrad::train::hf
