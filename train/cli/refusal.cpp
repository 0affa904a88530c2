#include <shardgrad/train/cli/refusal.h>

#include <algorithm>

#include <shardgrad/core/error.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/nearest.h>

namespace shardgrad::cli {
namespace {

// What is an option elsewhere, or looks like one, may be a key here.
std::string nearest_option(const CLI::App& command, const std::string& word) {
  std::string plain = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  plain.resize(std::min(plain.find('='), plain.size()));
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  if (std::string name = train::nearest(plain, names); !name.empty()) return "--" + name;
  std::ranges::replace(plain, '-', '_');
  std::string key = command.get_option_no_throw("--set") ? train::nearest_key(plain) : "";
  return key.empty() ? "" : concat("--set ", key, "=…");
}

std::string about(const CLI::App& command, const std::string& word) {
  std::string shown = train::shortened(word);
  const CLI::App* train = command.get_name() == "launch" ? command.get_parent()->get_subcommand("train") : nullptr;
  if (std::string name = word.substr(0, word.find('=')); train && train->get_option_no_throw(name))
    return concat("'", shown, "' is an option of the command that is launched; it goes behind that: launch -n N ",
                  "train CONFIG ", name, " …");
  if (word.starts_with('-'))
    return concat("there is no option '", shown, "'", did_you_mean(nearest_option(command, word)));
  if (!command.get_parent())
    return concat("there is no command '", shown, "'", did_you_mean(nearest_command(command, word)));
  bool setting = word.find('=') != std::string::npos && command.get_option_no_throw("--set");
  return concat("'", shown, "' is one word too many", did_you_mean(setting ? "--set " + shown : ""));
}

}  // namespace

std::string did_you_mean(const std::string& meant) {
  return meant.empty() ? "" : concat("; did you mean '", meant, "'?");
}

std::string nearest_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return train::nearest(word, names);
}

std::string refusal(const CLI::App* app, const CLI::Error& error) {
  const CLI::App* chosen = app;
  std::string name = "shardgrad";
  while (!chosen->get_subcommands().empty()) {  // a command may have commands
    chosen = chosen->get_subcommands().back();
    name += " " + chosen->get_name();
  }
  const CLI::App& command = *chosen;
  std::vector<std::string> rest = app->remaining(true);  // which launch has without a fault, its command
  bool extra = dynamic_cast<const CLI::ExtrasError*>(&error),
       unknown = !rest.empty() && (extra || !command.get_parent());
  std::string what = unknown ? about(command, rest[0]) : error.what();
  return concat(name, ": ", what, " (", name, " --help)\n");
}

}  // namespace shardgrad::cli
