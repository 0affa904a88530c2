// What the run was told to do, and where it ran.

#include <map>

#include <shardgrad/core/error.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/report/html.h>
#include <shardgrad/train/report/page.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

using Json = RunFiles::Json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string words_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// "optimizer.lr", "0.1"
Pairs flat(const Json& config) {
  Pairs pairs;
  for (const auto& [key, value] : config.items()) {
    if (!value.is_object())
      pairs.emplace_back(key, words_of(value));
    else
      for (const auto& [inner, part] : value.items()) pairs.emplace_back(key + "." + inner, words_of(part));
  }
  return pairs;
}

std::string settings_table(const RunFiles& run) {
  const Config unset;
  Pairs list = flat(parse_shallow(to_json(unset)));
  std::map<std::string, std::string> defaults(list.begin(), list.end());
  std::vector<html::Row> rows;
  for (const auto& [key, value] : flat(run.config)) {
    auto usual = defaults.find(key);
    bool changed = usual == defaults.end() || usual->second != value;
    rows.push_back({html::text(key),
                    changed ? concat("<span class=\"mark\">", html::text(value), "</span>") : html::text(value),
                    changed && usual != defaults.end() ? html::text(usual->second) : ""});
  }
  return html::table({"setting", "value", "default, where it is another"}, rows, true);
}

std::string environment_table(const RunFiles& run) {
  std::vector<html::Row> rows;
  if (run.about.is_object())
    for (const auto& [key, value] : run.about.items())
      if (!value.is_object()) rows.push_back({html::text(key), html::text(words_of(value))});
  if (run.checkpoint) {
    rows.push_back({"last checkpoint", concat("step ", html::count(run.checkpoint->reached.step))});
    rows.push_back({"its hash", html::text(run.checkpoint->hash())});
  } else {
    rows.push_back({"last checkpoint", "none"});
  }
  return html::table({"", ""}, rows, true);
}

}  // namespace

std::string settings_part(const RunFiles& run) {
  return html::section("settings", "Settings and environment", "",
                       html::grid({settings_table(run), environment_table(run)}));
}

}  // namespace shardgrad::train
