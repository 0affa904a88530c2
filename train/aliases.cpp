#include <shardgrad/train/aliases.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include <shardgrad/core/error.h>
#include <shardgrad/fsdp/setup/config.h>
#include <shardgrad/train/alias_list.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/wrapped_modules.h>

namespace shardgrad::train {
namespace {

using Json = AliasJson;

// Lightning's name of a strategy with an argument.
constexpr std::string_view kOffloading = "\"fsdp_native_full_shard_offload\"";

const Alias* alias_of(const std::string& name) {
  auto found = std::ranges::find(aliases(), name, [](const Alias& alias) { return std::string(alias.name); });
  return found == aliases().end() ? nullptr : &*found;
}

// The key of an argument of a component that nests, as Tango writes it: {"type": "fairscale", "amp": true}.
std::string unnested(const std::string& key) {
  size_t dot = key.find('.');
  std::string component = key.substr(0, dot), argument = dot == std::string::npos ? "" : key.substr(dot + 1);
  if (argument == "type" && (component == "training_engine" || component == "strategy")) return component;
  if (key == "model.type") return "model.name";
  if (component == "training_engine" && (alias_of(argument) || argument.starts_with("optimizer."))) return argument;
  if (component != "strategy" || argument.empty()) return key;
  if (argument == "cpu_offload") return "fsdp.move_params_to_cpu";
  return alias_of("fsdp_config." + argument) ? "fsdp_config." + argument : "fsdp." + argument;
}

std::string choices_of(const Alias& alias) {
  std::string list;
  for (const auto& [theirs, ours] : alias.values) list += concat(list.empty() ? "one of " : ", ", theirs.dump());
  return list;
}

// Of what once was a setting: why it is none, and what to do.
std::string why_none(const std::string& key) {
  if (key == "loss") return "any more; task.loss took its place";
  if (key == "trace")
    return "any more; trace_steps took its place: the first and the last step that are traced, [0, 0] for none";
  if (key == "lr_scheduler.num_training_steps")
    return "here: a schedule ends where the run does; leave it out, and say how long that is with steps or epochs";
  return "";
}

// Older versions of Lightning had strategies there.
bool is_strategy_as_accelerator(const Setting& setting) {
  if (setting.key != "accelerator") return false;
  Json value = Json::parse(setting.json);
  const std::vector<std::string> names = fsdp::strategy_names();
  return value.is_string() && std::ranges::count(names, value.get<std::string>()) > 0;
}

// A number of ranks as in Lightning; -1: any.
std::optional<int64_t> count_of(const std::string& json) {
  Json value = Json::parse(json);
  if (value == -1 || value == "-1" || value == "auto") return -1;
  bool fits = value.is_number_integer() && value >= 0 && value < 1 << 20;
  return fits ? std::optional(value.get<int64_t>()) : std::nullopt;
}

class Resolver {
 public:
  Resolver(std::vector<Setting> all, size_t of_file, std::vector<std::string>& faults)
      : all_(std::move(all)), of_file_(of_file), faults_(faults) {}

  OurSettings run() {
    drop_strategies_that_are_refined();
    check_amp();
    std::vector<Setting> resolved;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (i == of_file_) first_.clear();  // the command line changes what the file says
      if (std::optional<Setting> setting = resolve(all_[i])) resolved.push_back(std::move(*setting));
      if (std::optional<Setting> more = implied_by(all_[i])) resolved.push_back(std::move(*more));
    }
    return {std::move(resolved), std::move(ranks_)};
  }

 private:
  struct Given {
    std::string name, place;
  };

  // The last setting of one of the names.
  const Setting* last(std::initializer_list<const char*> names) const {
    auto is_one = [&](const Setting& s) { return std::ranges::count(names, s.key) > 0; };
    auto found = std::find_if(all_.rbegin(), all_.rend(), is_one);
    return found == all_.rend() ? nullptr : &*found;
  }

  // Tango's engine and its fsdp_config are both given, and the second says more.
  void drop_strategies_that_are_refined() {
    if (!last({"fsdp_config.reshard_after_forward"})) return;
    for (size_t i = 0; i < all_.size();) {
      bool names_it = all_[i].key == "strategy" || all_[i].key == "training_engine";
      bool general = names_it && (all_[i].json == "\"fairscale\"" || all_[i].json == "\"fsdp\"");
      of_file_ -= general && i < of_file_;
      i += !general;
      if (general) all_.erase(all_.begin() + int64_t(i));
    }
  }

  void check_amp() {
    const Setting *amp = last({"amp"}), *dtype = last({"amp_use_bfloat16"});
    if (dtype && dtype->json != "null" && (!amp || amp->json != "true"))
      faults_.push_back(concat(dtype->place, ": amp_use_bfloat16 means nothing without amp=true"));
  }

  // As in Tango.
  Json amp_dtype() const {
    const Setting* dtype = last({"amp_use_bfloat16"});
    if (dtype && dtype->json != "null") return dtype->json == "true" ? "bf16" : "f16";
    return is_on_cpu() ? "bf16" : "f16";
  }

  // As the last setting says that says it.
  bool is_on_cpu() const {
    for (size_t i = all_.size(); i-- > 0;) {
      const Setting& s = all_[i];
      if (s.key == "gpus" && s.json != "null") return s.json == "0";
      if (s.key == "device" || (s.key == "accelerator" && !is_strategy_as_accelerator(s))) return s.json == "\"cpu\"";
    }
    return true;
  }

  // What a name of theirs says beside what it stands for.
  std::optional<Setting> implied_by(const Setting& setting) const {
    if (setting.key == "strategy" && setting.json == kOffloading && last({"strategy"}) == &setting)
      return Setting{"fsdp.move_params_to_cpu", "true", place_of(setting)};
    bool plateau = setting.key.starts_with("lr_scheduler") && setting.json == "\"torch::ReduceLROnPlateau\"";
    bool stays = plateau && last({"lr_scheduler", "lr_scheduler.type", "schedule.name"}) == &setting;
    if (!stays || last({"lr_scheduler.patience", "schedule.patience"})) return {};
    return Setting{"schedule.patience", "11", place_of(setting)};  // PyTorch's own 10, counted as here
  }

  std::optional<Setting> resolve(const Setting& setting) {
    if (std::string why = why_none(setting.key); !why.empty()) {
      faults_.push_back(concat(setting.place, ": ", setting.key, " is no key ", why));
      return {};
    }
    if (setting.key == "gpus" || setting.key == "devices") return counted(setting);
    const Alias* alias = alias_of(setting.key);
    Setting ours = setting;
    if (is_strategy_as_accelerator(setting))
      ours = {"strategy", setting.json, place_of(setting)};
    else if (setting.key == "strategy" && setting.json == kOffloading)
      ours.json = "\"zero3\"";
    else if (alias)
      ours = translated(setting, *alias);
    if (ours.json.empty() || !is_only_name(ours.key, setting)) return {};
    if (ours.key == "device" && ranks_ && ranks_->key == "gpus") ranks_.reset();  // another device, other ranks
    return ours;
  }

  // What says how many ranks there are is no setting, but `gpus` says where they are.
  std::optional<Setting> counted(const Setting& setting) {
    if (setting.json == "null") return {};
    bool gpus = setting.key == "gpus";
    std::optional<int64_t> count = count_of(setting.json);
    if (!count || (*count == 0 && !gpus)) {
      const char* which = "how many, or -1 for any number; which ones, says the variable CUDA_VISIBLE_DEVICES";
      refused(setting, gpus ? which : "how many ranks there are, or \"auto\"");
      return {};
    }
    if (!is_only_name("the number of ranks", setting)) return {};
    ranks_ = *count > 0 ? std::optional(setting) : std::nullopt;
    if (!gpus || !is_only_name("device", setting)) return {};
    return Setting{"device", *count == 0 ? "\"cpu\"" : "\"cuda\"", place_of(setting)};
  }

  // Without a value where there is none.
  Setting translated(const Setting& setting, const Alias& alias) {
    Json value = Json::parse(setting.json);
    auto known = std::ranges::find(alias.values, value, &std::pair<Json, Json>::first);
    bool is_patience = std::string(alias.name) == "lr_scheduler.patience";
    std::string key = alias.key;
    if (known != alias.values.end())
      value = known->second;
    else if (value.is_number_integer() && std::string(alias.name) == "fsdp_config.reshard_after_forward")
      key = "fsdp.reshard_after_forward";  // a number of ranks, as FSDP2 has it
    else if (is_patience && value.is_number_integer() && value >= 0 && value < 1 << 30)
      value = value.get<int64_t>() + 1;
    else if (!alias.values.empty() && !alias.others)
      return refused(setting, choices_of(alias));
    if (value == true && std::string(alias.name) == "amp") value = amp_dtype();
    return {key, value.is_null() ? "" : value.dump(), place_of(setting)};
  }

  // Of a setting by its other name.
  static std::string place_of(const Setting& setting) {
    bool in_file = !setting.place.starts_with("--set ");
    return in_file ? concat(setting.place, " (", setting.key, ")") : setting.place;
  }

  Setting refused(const Setting& setting, const std::string& expected) {
    faults_.push_back(
        concat(setting.place, ": ", setting.key, " is ", shortened(setting.json), ", expected ", expected));
    return {};
  }

  bool is_only_name(const std::string& key, const Setting& setting) {
    auto [first, added] = first_.emplace(key, Given{setting.key, setting.place});
    auto of_amp = [](const std::string& name) { return name.starts_with("amp"); };
    bool same = added || first->second.name == setting.key || (of_amp(first->second.name) && of_amp(setting.key));
    if (!same)
      faults_.push_back(concat(setting.place, ": ", setting.key, " and ", first->second.name, " at ",
                               first->second.place, " are one key, ", key, "; leave one out"));
    return same;
  }

  std::vector<Setting> all_;
  size_t of_file_;
  std::vector<std::string>& faults_;
  std::optional<Setting> ranks_;
  std::map<std::string, Given> first_;  // by our key, of the file or of the command line
};

std::vector<Setting> unnested(std::vector<Setting> settings, std::vector<std::string>& faults) {
  std::map<std::string, std::string> written;
  for (Setting& setting : settings) {
    auto [first, is_new] = written.emplace(unnested(setting.key), setting.key);
    if (!is_new && first->second != setting.key)
      faults.push_back(concat(setting.place, ": ", setting.key, " and ", first->second, " are one key, ", first->first,
                              "; leave one out"));
    setting.key = first->first;
  }
  return settings;
}

}  // namespace

OurSettings in_our_names(const std::vector<Setting>& of_file, const std::vector<Setting>& of_command_line,
                         std::vector<std::string>& faults) {
  std::vector<Setting> all = unnested(without_wrapped_modules(of_file, faults), faults);
  size_t count_of_file = all.size();
  std::vector<Setting> last = unnested(of_command_line, faults);
  all.insert(all.end(), last.begin(), last.end());
  return Resolver(std::move(all), count_of_file, faults).run();
}

std::vector<std::string> alias_names() {
  std::vector<std::string> names;
  for (const Alias& alias : aliases()) names.emplace_back(alias.name);
  return names;
}

std::string alias_table() {
  std::string table =
      "What Tango, Lightning and PyTorch call a key may be written in its place:\n\n"
      "| other name | key | what differs |\n|---|---|---|\n";
  for (const Alias& alias : aliases())
    table += concat("| `", alias.name, "` | `", alias.key, "` | ", alias.note, " |\n");
  return table;
}

}  // namespace shardgrad::train
