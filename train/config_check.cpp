#include <shardgrad/train/config_check.h>

#include <algorithm>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {
namespace {

std::string unless(const std::string& to, const char* other) { return concat(to, "; remove it or change ", other); }

// Keys that only some choices know; all choices know the others.
struct OfChoices {
  const char* key;
  std::vector<std::string> choices;
};

bool knows(const std::vector<OfChoices>& keys, const std::string& choice, const std::string& key) {
  auto found = std::ranges::find(keys, key, &OfChoices::key);
  return found == keys.end() || std::ranges::count(found->choices, choice) > 0;
}

bool knows_optimizer(const std::string& name, const std::string& key) {
  static const std::vector<OfChoices> keys{{"optimizer.momentum", {"sgd"}},
                                           {"optimizer.nesterov", {"sgd"}},
                                           {"optimizer.betas", {"adam", "adamw", "muon"}},
                                           {"optimizer.eps", {"adam", "adamw", "muon"}},
                                           {"optimizer.lion_betas", {"lion"}},
                                           {"optimizer.muon_momentum", {"muon"}},
                                           {"optimizer.adamw", {"muon"}},
                                           {"optimizer.stochastic_rounding", {"sgd", "adam", "adamw"}}};
  return knows(keys, name, key);
}

bool knows_schedule(const std::string& name, const std::string& key) {
  static const std::vector<OfChoices> keys{
      {"schedule.warmup_steps", {"constant", "linear", "cosine", "step", "plateau"}},
      {"schedule.final", {"linear", "cosine"}},
      {"schedule.step_size", {"step"}},
      {"schedule.gamma", {"step", "plateau"}},
      {"schedule.patience", {"plateau"}},
      {"schedule.pct_start", {"one_cycle"}},
      {"schedule.div_factor", {"one_cycle"}},
      {"schedule.final_div_factor", {"one_cycle"}}};
  return knows(keys, name, key);
}

std::string units_of(const std::string& wrap) {
  if (wrap == "children") return "units that are the model's children";
  return wrap == "size" ? "units of a size" : "units that types and names choose";
}

std::string why_idle_sharding(const Config& config, const std::string& key) {
  bool of_types = key == "fsdp.wrap_types" || key == "fsdp.wrap_names" || key == "fsdp.wrap_regex";
  if ((key == "fsdp.wrap_numel" && config.fsdp.wrap != "size") || (of_types && config.fsdp.wrap != "types"))
    return unless(units_of(config.fsdp.wrap), "fsdp.wrap");
  fsdp::Config sharding = config.fsdp.options;
  sharding.strategy = fsdp::parse_strategy(config.strategy);
  if (key == "fsdp.prefetch_bytes" && sharding.prefetch == 0) return unless("a prefetch of 0 units", "fsdp.prefetch");
  if (key == "fsdp.bucket_bytes" && !sharding.keeps_params())
    return concat(config.strategy,
                  ", which reduces a unit's gradients together; remove it, or choose units (fsdp.wrap)");
  return "";
}

}  // namespace

bool chooses(const std::string& key) {
  static const std::vector<std::string> keys{"task.name",       "optimizer.name",     "optimizer.momentum",
                                             "schedule.name",   "schedule.step_size", "strategy",
                                             "fsdp.wrap",       "fsdp.wrap_types",    "fsdp.wrap_names",
                                             "fsdp.wrap_regex", "fsdp.prefetch",      "fsdp.keep_params",
                                             "steps",           "micro_batches",      "grains"};
  return std::ranges::count(keys, key) > 0;
}

std::string why_idle(const Config& config, const std::string& key) {
  bool updates = key.starts_with("optimizer.") || key.starts_with("schedule.");
  if (updates && config.registry->has_own_optimizer(config.task.name))
    return unless(concat("task ", config.task.name, ", which has an optimizer of its own"), "task.name");
  if (!knows_optimizer(config.optimizer.name, key)) return unless(config.optimizer.name, "optimizer.name");
  if (key.starts_with("model.") && !key.starts_with("model.recompute") &&
      config.registry->has_own_model(config.task.name))
    return unless(concat("task ", config.task.name, ", which has a module of its own"), "task.name");
  if (key == "epochs" && config.steps > 0) return unless("a run of `steps`", "steps");
  if ((key == "micro_batches" || key == "reduce_once") && config.grains > 0) return unless("grains", "grains");
  if (key == "reduce_once" && config.micro_batches == 1) return unless("one micro-batch", "micro_batches");
  if (!knows_schedule(config.schedule.name, key))
    return unless(concat("a ", config.schedule.name, " schedule"), "schedule.name");
  return why_idle_sharding(config, key);
}

static void check_paths(const Config& config, std::vector<std::string>& faults) {
  auto has_control = [](const std::string& text) {
    return std::ranges::any_of(text, [](char c) { return uint8_t(c) < ' ' || c == '\x7f'; });
  };
  if (config.name.find('/') != std::string::npos || config.name[0] == '.' || has_control(config.name))
    faults.push_back(concat("name is '", printable(shortened(config.name)),
                            "'; it names a folder: no '/', no leading '.', no control characters"));
  if (has_control(config.runs))
    faults.push_back(
        concat("runs is '", printable(shortened(config.runs)), "'; it names a folder: no control characters"));
}

void check_together(const Config& config, const std::vector<Setting>& settings, std::vector<std::string>& faults) {
  for (const Setting& setting : settings)
    if (std::string why = why_idle(config, setting.key); !why.empty())
      faults.push_back(concat(setting.place, ": ", setting.key, " means nothing to ", why));
  if (config.optimizer.nesterov && config.optimizer.momentum == 0)
    faults.emplace_back("optimizer.nesterov needs a momentum above 0");
  if (config.micro_batches > config.batch)
    faults.push_back(concat("micro_batches is ", config.micro_batches, ", and a batch has ", config.batch,
                            " samples; set micro_batches to ", config.batch, " at most, or batch to ",
                            config.micro_batches, " at least"));
  if (config.grains > config.batch)
    faults.push_back(concat("grains is ", config.grains, ", and a batch has ", config.batch, " samples; set grains to ",
                            config.batch, " at most, or batch to ", config.grains, " at least"));
  if (config.grains > 0 && config.fsdp.options.reduce_dtype && size_of(*config.fsdp.options.reduce_dtype) < 4)
    faults.push_back(concat("grains: gradients that are sent as ", *config.fsdp.options.reduce_dtype,
                            " are rounded as often as ranks are added; set fsdp.reduce_dtype to f32, or leave it out"));
  if (config.schedule.name == "step" && !config.schedule.step_size)
    faults.emplace_back("schedule.name is step, which needs schedule.step_size: the steps between two drops");
  bool chooses_units =
      !config.fsdp.wrap_types.empty() || !config.fsdp.wrap_names.empty() || !config.fsdp.wrap_regex.empty();
  if (config.fsdp.wrap == "types" && !chooses_units)
    faults.emplace_back(
        "fsdp.wrap is types, which needs fsdp.wrap_types (such as [\"Linear\"]), fsdp.wrap_names or fsdp.wrap_regex");
  check_paths(config, faults);
}

}  // namespace shardgrad::train
