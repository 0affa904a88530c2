#include <shardgrad/train/keys.h>

#include <algorithm>
#include <optional>

#include <shardgrad/core/error.h>
#include <shardgrad/train/aliases.h>
#include <shardgrad/train/nearest.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/synonyms.h>
#include <shardgrad/train/terminal.h>

namespace shardgrad::train {
namespace {

constexpr const char* kKinds[] = {"data", "model", "task"};

// In a Markdown table.
std::string as_cell(std::string text) {
  for (size_t bar = text.find('|'); bar != std::string::npos; bar = text.find('|', bar + 2)) text.insert(bar, 1, '\\');
  return text;
}

// No field has this key: apply_kernel() of config.cpp reads it.
constexpr const char* kKernels =
    "which of the kernels offered for OPERATION is used in the place of the built-in one (docs/extending.md)";

}  // namespace

std::string kind_of(const std::string& key) {
  std::string kind = key.substr(0, std::min(key.find('.'), key.size()));
  return kind.size() < key.size() && std::ranges::count(kKinds, kind) ? kind : "";
}

void visit_keys(const Config& given,
                const std::function<void(const std::string& key, const Option& option, const std::string& of)>& visit) {
  Config config = given;
  for (const Option& option : list_options(config)) {
    visit(option.key, option, "");
    std::string kind = kind_of(option.key);
    if (kind.empty() || option.key != kind + ".name") continue;
    for (const std::string& name : config.registry->names(kind))
      for (const Option& inner : config.registry->options(kind, {name}).list)
        visit(kind + "." + inner.key, inner, name);
  }
}

namespace {

// Of the options that the chosen data set, model and task have, or of those of the others.
void visit_some(const Config& config, bool chosen,
                const std::function<void(const std::string&, const Option&)>& visit) {
  visit_keys(config, [&](const std::string& key, const Option& option, const std::string& of) {
    std::string kind = of.empty() ? "" : kind_of(key);
    const Component& now = kind == "data" ? config.data : kind == "model" ? config.model : config.task;
    if ((kind.empty() || now.name == of) == chosen) visit(key, option);
  });
}

// As a whole, by its last part ("lr"), and by words of its meaning ("learning_rate").
std::string nearest_of(const std::string& word, const Config& config, bool chosen) {
  std::string plain = word.substr(word.rfind('.') + 1), best;
  std::ranges::replace(plain, '_', ' ');
  std::optional<size_t> least;
  auto consider = [&](const std::string& key, std::optional<size_t> found) {
    if (!found || (least && *least <= *found)) return;
    least = found;
    best = key;
  };
  visit_some(config, chosen, [&](const std::string& key, const Option& option) {
    consider(key, distance(word, key));
    consider(key, distance(word, key.substr(key.rfind('.') + 1)));
    bool told = plain.find(' ') != std::string::npos && option.meaning.find(plain) != std::string::npos;
    consider(key, told ? std::optional<size_t>(1) : std::nullopt);
  });
  if (chosen)
    for (const std::string& alias : alias_names()) consider(alias, distance(word, alias));
  return best;
}

}  // namespace

// Where the chosen model has no option of a synonym's name, the word may be another one's.
std::string nearest_key(const std::string& word, const Config& config) {
  if (const Synonym* synonym = synonym_of(word)) {
    bool known = false;
    visit_some(config, true, [&](const std::string& key, const Option&) { known |= key == synonym->key; });
    if (known) return synonym->key;
  }
  std::string best = nearest_of(word, config, true);
  return best.empty() ? nearest_of(word, config, false) : best;
}

std::string key_table(const Registry& registry) {
  Config defaults;
  defaults.registry = std::make_shared<Registry>(registry);
  std::string table = "| key | default | may be | meaning |\n|---|---|---|---|\n";
  visit_keys(defaults, [&](const std::string& key, const Option& option, const std::string& of) {
    std::string json = option.json(), shown = json.empty() ? "unset" : "`" + json + "`";
    table += concat("| `", key, "` | ", as_cell(shown), " | ", as_cell(option.expected), " | ",
                    of.empty() ? "" : concat("`", of, "`: "), as_cell(option.meaning), " |\n");
  });
  return concat(table, "| `kernels.OPERATION` | none | a text | ", kKernels, " |\n\n", alias_table());
}

std::string key_list(const Registry& registry, const std::string& word, int columns) {
  Config defaults;
  defaults.registry = std::make_shared<Registry>(registry);
  std::string list;
  auto add = [&](const std::string& key, const std::string& value, const std::string& words) {
    if ((key + words).find(word) == std::string::npos) return;
    list += concat(key, " = ", value, '\n');
    for (const std::string& line : broken(words, columns - 5)) list += concat("    ", line, '\n');
  };
  visit_keys(defaults, [&](const std::string& key, const Option& option, const std::string& of) {
    std::string json = option.json(), whose = of.empty() ? "" : concat(of, ": ");
    add(key, json.empty() ? "unset" : json, concat(whose, option.meaning, " (", option.expected, ")"));
  });
  add("kernels.OPERATION", "unset", kKernels);
  return list;
}

}  // namespace shardgrad::train
