#include <shardgrad/train/hf/component.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/train/tasks/language.h>

namespace shardgrad::train::hf {
namespace {

template <class Choice> Choice chosen(const Component& model) {
  Choice choice;
  OptionList list;
  choice.list(list);
  for (const auto& [key, json] : model.options) {
    const Option* option = list.find(key);
    SG_CHECK(option && option->assign(json), "model.", key, " is ", json, ", which ", model.name, " cannot have");
  }
  return choice;
}

// A configuration has one dropout for all places.
Gpt2Choice choice_of(const nn::Gpt2Options& options, const std::string& file) {
  SG_CHECK(options.embd_pdrop == options.attn_pdrop && options.attn_pdrop == options.resid_pdrop, file,
           ": embd_pdrop is ", options.embd_pdrop, ", attn_pdrop ", options.attn_pdrop, ", resid_pdrop ",
           options.resid_pdrop, "; training has one dropout for the three places, so they must be the same");
  return {options, options.embd_pdrop};
}

LlamaChoice choice_of(const nn::LlamaOptions& options, const std::string&) {
  if (!options.rope.scaling) return {options};
  const Llama3Scaling& s = *options.rope.scaling;
  return {options, {s.factor, s.low_freq_factor, s.high_freq_factor, double(s.original_positions)}};
}

std::vector<Setting> settings_of(const std::string& folder) {
  std::string file = folder + "/" + kConfigFile;
  std::vector<Setting> settings;
  auto set = [&](const std::string& key, const std::string& json) { settings.push_back({key, json, file}); };
  ModelOptions options = read_model_config(folder);
  set("init_from", nlohmann::json(folder).dump());
  set("model.name", nlohmann::json(name_of(options)).dump());
  std::visit(
      [&](const auto& model) {
        auto choice = choice_of(model, file);
        OptionList list;
        choice.list(list);
        for (const Option& option : list) set("model." + option.key, option.json());
      },
      options);
  return settings;
}

// What a key is given last, as JSON; empty when it is not given.
std::string value_of(const std::vector<Setting>& given, const char* key) {
  auto found = std::find_if(given.rbegin(), given.rend(), [&](const Setting& s) { return s.key == key; });
  return found == given.rend() ? "" : found->json;
}

}  // namespace

ModelOptions options_of(const Component& model) {
  if (model.name == "gpt2") return chosen<Gpt2Choice>(model).options();
  SG_CHECK(model.name == "llama", "model.name is ", model.name, "; a Hugging Face folder can hold gpt2 and llama");
  return chosen<LlamaChoice>(model).options();
}

std::vector<Setting> settings_of_folder(const std::vector<Setting>& given, std::vector<std::string>& faults) {
  nlohmann::json from = nlohmann::json::parse(value_of(given, "model.from"), nullptr, false);
  if (!from.is_string() || from == "") return {};  // refused as any value that a key cannot have
  try {
    std::vector<Setting> settings = settings_of(from.get<std::string>());
    std::string name = value_of(given, "model.name"), there = value_of(settings, "model.name");
    if (name.empty() || name == there) return settings;
    faults.push_back(concat("model.from is ", from.dump(), ", which holds a ", there, "; leave model.name out"));
  } catch (const Error& error) {
    faults.push_back(error.what());
  }
  return {};
}

}  // namespace shardgrad::train::hf
