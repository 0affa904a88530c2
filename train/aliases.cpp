#include <shardgrad/train/aliases.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/wrapped_modules.h>

namespace shardgrad::train {
namespace {

using Json = nlohmann::ordered_json;

// What a value is called elsewhere, and here; null is no setting.
using Values = std::vector<std::pair<Json, Json>>;

struct Alias {
  const char* name;
  const char* key;
  Values values{};      // empty: the same as here
  bool others = false;  // beside `values`, those that are the same as here
  const char* note = "";
};

Values schedules() {
  return {{nullptr, "constant"},
          {"torch::StepLR", "step"},
          {"torch::CosineAnnealingLR", "cosine"},
          {"torch::OneCycleLR", "one_cycle"},
          {"torch::ReduceLROnPlateau", "plateau"},
          {"transformers::constant", "constant"},
          {"transformers::constant_with_warmup", "constant"},
          {"transformers::linear", "linear"},
          {"transformers::cosine", "cosine"}};
}

Values accelerators() { return {{"cpu", "cpu"}, {"gpu", "cuda"}, {"cuda", "cuda"}, {"auto", "auto"}}; }
Values engines() { return {{"fairscale", "fairscale"}, {"torch", "ddp"}}; }
Values optimizers() { return {{"torch::SGD", "sgd"}, {"torch::Adam", "adam"}, {"torch::AdamW", "adamw"}}; }

// A word that fits two of them equally well is meant for the first.
const std::vector<Alias>& aliases() {
  static const std::vector<Alias> list{
      {"accelerator", "device", accelerators(), false, "`gpu` is `cuda`"},
      {"training_engine", "strategy", engines(), false, "`fairscale` is `zero3`, `torch` is `ddp`"},
      {"optimizer.type", "optimizer.name", optimizers(), true, "PyTorch's names after `torch::`"},
      {"max_grad_norm", "clip_grad_norm", {{nullptr, 0}}, true, "null: none"},
      {"amp_use_bfloat16",
       "autocast",
       {{true, "bf16"}, {false, "f16"}, {nullptr, nullptr}},
       false,
       "which one, beside `amp`"},
      {"amp", "autocast", {{true, true}, {false, "off"}}, false, "true: `bf16` on `device` cpu, `f16` elsewhere"},
      {"lr_scheduler.type", "schedule.name", schedules(), true, "PyTorch's names after `torch::` or `transformers::`"},
      {"lr_scheduler.num_warmup_steps", "schedule.warmup_steps"},
      {"lr_scheduler.step_size", "schedule.step_size"},
      {"lr_scheduler.gamma", "schedule.gamma"},
      {"lr_scheduler.factor", "schedule.gamma"},
      {"lr_scheduler.patience", "schedule.patience", {}, true, "one less: PyTorch does not count the last evaluation"},
      {"lr_scheduler.pct_start", "schedule.pct_start"},
      {"lr_scheduler.div_factor", "schedule.div_factor"},
      {"lr_scheduler.final_div_factor", "schedule.final_div_factor"},
      {"lr_scheduler", "schedule.name", schedules(), true, "the same"},
      {"fsdp_config.reshard_after_forward",
       "strategy",
       {{true, "zero3"}, {false, "zero2"}},
       false,
       "true: `zero3`, false: `zero2`; a number of ranks is `fsdp.reshard_after_forward`"},
      {"fsdp_config.move_params_to_cpu", "fsdp.move_params_to_cpu"},
      {"fsdp_config.move_grads_to_cpu", "fsdp.move_grads_to_cpu", {{nullptr, nullptr}}, true, "null: unset"},
      {"fsdp_config.mixed_precision",
       "fsdp.param_dtype",
       {{true, "f16"}, {false, "own"}},
       false,
       "true: `f16`, gradients are sent in f32"}};
  return list;
}

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

// Of what others have as a setting and we say in another way, and of what once was one: why it is none, and what to do.
std::string why_none(const std::string& key) {
  bool ranks = key == "devices" || key == "gpus";
  const char* gpus = key == "gpus" ? ", and the GPU with device=cuda" : "";
  if (key == "loss") return "any more; task.loss took its place";
  if (key == "trace")
    return "any more; trace_steps took its place: the first and the last step that are traced, [0, 0] for none";
  return ranks ? concat("here; the number of ranks is said when they are started, with `shardgrad launch -n N train …`",
                        gpus)
               : "";
}

class Resolver {
 public:
  Resolver(std::vector<Setting> all, size_t of_file, std::vector<std::string>& faults)
      : all_(std::move(all)), of_file_(of_file), faults_(faults) {}

  std::vector<Setting> run() {
    drop_strategies_that_are_refined();
    check_amp();
    std::vector<Setting> resolved;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (i == of_file_) first_.clear();  // the command line changes what the file says
      if (std::optional<Setting> setting = resolve(all_[i])) resolved.push_back(std::move(*setting));
    }
    return resolved;
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
    const Setting *dtype = last({"amp_use_bfloat16"}), *device = last({"device", "accelerator"});
    if (dtype && dtype->json != "null") return dtype->json == "true" ? "bf16" : "f16";
    return !device || device->json == "\"cpu\"" ? "bf16" : "f16";
  }

  std::optional<Setting> resolve(const Setting& setting) {
    if (std::string why = why_none(setting.key); !why.empty()) {
      faults_.push_back(concat(setting.place, ": ", setting.key, " is no key ", why));
      return {};
    }
    const Alias* alias = alias_of(setting.key);
    Setting ours = alias ? translated(setting, *alias) : setting;
    if (ours.json.empty() || !is_only_name(ours.key, setting)) return {};
    return ours;
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
    bool in_file = !setting.place.starts_with("--set ");
    return {key, value.is_null() ? "" : value.dump(),
            in_file ? concat(setting.place, " (", alias.name, ")") : setting.place};
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

std::vector<Setting> in_our_names(const std::vector<Setting>& of_file, const std::vector<Setting>& of_command_line,
                                  std::vector<std::string>& faults) {
  std::vector<Setting> all = unnested(without_wrapped_modules(of_file, faults), faults);
  std::vector<Setting> last = unnested(of_command_line, faults);
  all.insert(all.end(), last.begin(), last.end());
  return Resolver(std::move(all), of_file.size(), faults).run();
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
