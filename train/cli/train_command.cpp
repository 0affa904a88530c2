#include <sysexits.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include <shardgrad/dist/launch/launch.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/trainer.h>

namespace shardgrad::cli {

namespace {

// Words of a command line as one text, for `launch` to tell the ranks.
constexpr char kBetween = '\x1f';

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream all(text);
  for (std::string word; std::getline(all, word, kBetween);) words.push_back(word);
  return words;
}

// Takes out `--set key=…`.
void unset(std::vector<std::string>& words, const std::string& key) {
  for (size_t i = 0; i + 1 < words.size();)
    if (words[i] == "--set" && words[i + 1].starts_with(key + "="))
      words.erase(words.begin() + int64_t(i), words.begin() + int64_t(i) + 2);
    else
      ++i;
  std::erase_if(words, [&](const std::string& word) { return word.starts_with(concat("--set=", key, "=")); });
}

}  // namespace

void tell_ranks(const std::vector<std::string>& typed) {
  std::string text;
  for (const std::string& word : typed) text += (text.empty() ? "" : std::string(1, kBetween)) + word;
  setenv("SHARDGRAD_COMMAND", text.c_str(), 1);
}

std::string line_to_go_on(std::vector<std::string> typed, const train::Config& config, const std::string& name) {
  auto set = [&](const std::string& key, const std::string& value) {
    unset(typed, key);
    typed.insert(typed.end(), {"--set", concat(key, "=", value)});
  };
  if (name != config.name) set("name", name);
  if (!config.resume) set("resume", "true");
  return dist::shell_line(typed);
}

int train_command(RunOptions options) {
  options.when_told = dist::WhenTold::saves;
  return run_job(options, [&](const train::Config& config, dist::Job& job) {
    train::Result result = train::train(config, job.world(), std::cout, find_terminal(job));
    if (!result.stopped) return 0;
    const char* command = std::getenv("SHARDGRAD_COMMAND");
    std::vector<std::string> launched = split(command ? command : "");
    bool alone = launched.empty() && job.world().size() > 1;  // what started the ranks is not known
    std::string name = std::filesystem::path(result.folder).filename();
    std::string line = line_to_go_on(launched.empty() ? options.typed : launched, config, name);
    if (job.world().rank() == 0) std::cout << "go on with: " << (alone ? "… " : "") << line << std::endl;
    return EX_TEMPFAIL;  // 75
  });
}

}  // namespace shardgrad::cli
