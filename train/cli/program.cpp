#include <shardgrad/train/cli/program.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/launch/launch.h>
#include <shardgrad/dist/os/machine.h>
#include <shardgrad/dist/os/relay.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/kernels/choices.h>
#include <shardgrad/kernels/table.h>
#include <shardgrad/train/build_info.h>
#include <shardgrad/train/cli/refusal.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/hf/config.h>
#include <shardgrad/train/keys.h>
#include <shardgrad/train/terminal.h>

namespace shardgrad::cli {

std::string version_text() {
  train::BuildInfo build = train::build_info();
  std::string mpi = dist::mpi_library();
  return concat("shardgrad ", build.version, " (git ", build.git, ")\n  compiler  ", build.compiler, "\n  MPI       ",
                mpi.empty() ? "none" : mpi, "\n  oneDNN    ", build.onednn, "\n  OpenMP    ", build.openmp,
                "\n  PCRE2     ", build.pcre2, "\n  CUDA      ", build.cuda, "\n  CPU       ", name_of(best_isa()),
                "\n");
}

namespace {

struct LaunchCommand {
  int ranks = 2;
  dist::LaunchOptions options;
  std::vector<std::string> words;  // what the ranks run
};

// A command line is understood as a whole before anything is done.
struct CommandLine {
  explicit CommandLine(const train::Registry& registry);
  /// The exit code of one that leaves nothing to do: it is refused, or asked for help.
  std::optional<int> parse(std::vector<std::string> words);
  bool is_command(const std::string& word) const {
    return !app.get_subcommands([&](const CLI::App* command) { return command->get_name() == word; }).empty();
  }

  CLI::App app{"shardgrad: tensors, autograd and ZeRO-sharded training", "shardgrad"};
  RunOptions train;
  bool keys = false;
  PlanOptions plan;
  UseOptions use;
  TextOptions text;
  std::string file;
  CertifyOptions certify;
  LaunchCommand launch;
  std::string folder;  // of `new`
  DoctorOptions doctor;
  std::function<int()> chosen;

 private:
  void add_train();
  void add_uses();
  void add_generate();
  void add_certify();
  void add_launch();
  void add_new();
};

int run_launch(const LaunchCommand& launch, const train::Registry& registry);

// To people as much as they can read; all of it, whoever asks, as the table of docs/config.md.
int list_keys(const RunOptions& options) {
  const std::string& word = options.config;
  if (word.empty() && !isatty(STDOUT_FILENO)) {
    std::cout << train::key_table(*options.registry);
    return 0;
  }
  int columns = train::terminal_columns(STDOUT_FILENO, std::getenv("COLUMNS"));
  std::string list = train::key_list(*options.registry, word, columns);
  SG_CHECK(!list.empty(), "no key has '", train::shortened(word), "' in its name or meaning; `train --keys` lists all");
  std::cout << list;
  return 0;
}

void CommandLine::add_train() {
  CLI::App* command = app.add_subcommand("train", "Train the model of a configuration file");
  command->add_option("config", train.config, "the configuration, a JSON file; see --keys");
  command->add_option("--set", train.overrides, "change one key, e.g. --set optimizer.lr=0.01")
      ->allow_extra_args(false);
  command->add_option("--group", train.group,
                      "how ranks communicate: single, shared_memory, two_level, mpi or nccl; by default what fits");
  command->add_flag("--keys", keys,
                    "list the keys of a configuration, or those about a word, and end: train --keys schedule");
  command->callback([this] {
    chosen = [this] { return keys ? list_keys(train) : train_command(train); };
    if (!keys && train.config.empty()) throw CLI::RequiredError("config");
  });
}

// What is wrong with a folder that should be a run's; empty: nothing, as far as its kind goes.
std::string why_no_run(const std::string& folder) {
  if (!train::hf::is_model_folder(folder)) return "";
  return concat("'", folder, "' is a model of Hugging Face's, and no run; `shardgrad generate ", folder,
                " --prompt …` writes text with it, and a run with the key model.from=", folder, " begins with it");
}

void CommandLine::add_uses() {
  auto add = [this](const char* name, const char* meaning, int (*call)(const UseOptions&)) {
    CLI::App* command = app.add_subcommand(name, meaning);
    command
        ->add_option("run", use.folder,
                     "a run, e.g. runs/fashion_mnist, or one of its checkpoints: RUN/best, RUN/step-120")
        ->required()
        ->check(why_no_run);
    command->add_option("--set", use.run.overrides, "change one key of the run, e.g. --set data.dir=DIR")
        ->allow_extra_args(false);
    command->callback([this, call] { chosen = [this, call] { return call(use); }; });
    return command;
  };
  add("eval", "Scores of a run's checkpoint, the last or another one, on its test samples", eval_command)
      ->add_option("--group", use.run.group, "how ranks communicate, see train");
  CLI::App* predict = add("predict", "What a run's model says of new samples", predict_command);
  predict->add_option("--input", use.input, "raw samples, a .npy file with a row for each")->required();
  predict->add_option("--output", use.output, "a .csv or .npy file")->required();
  CLI::App* exported = add("export", "Writes a run's model in another program's form", export_command);
  exported->add_option("--hf", use.output, "a Hugging Face folder to make, for transformers and others")->required();
  exported
      ->add_option("--dtype", use.dtype,
                   "f32, bf16 or f16; by default what the run began with where that loses nothing, else f32")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  CLI::App* hash = app.add_subcommand("hash", "Checks a run's checkpoint and prints its hash");
  hash->add_option("run", file, "a run, or one of its checkpoints")->required()->check(why_no_run);
  hash->callback([this] { chosen = [this] { return hash_command(file); }; });
  CLI::App* inspect = app.add_subcommand("inspect", "What a safetensors file holds");
  inspect->add_option("file", file, "the file")->required();
  inspect->callback([this] { chosen = [this] { return inspect_command(file); }; });
  CLI::App* report = app.add_subcommand("report", "Draw a run's page: one HTML file that shows what happened");
  report->add_option("run", use.folder, "the folder of a run, e.g. runs/fashion_mnist")->required()->check(why_no_run);
  report->add_option("--output", use.output, "the file; by default report.html in that folder");
  report->callback([this] { chosen = [this] { return report_command(use.folder, use.output); }; });
}

void CommandLine::add_generate() {
  CLI::App* command = app.add_subcommand("generate", "What a language model says after a prompt");
  command->add_option("from", text.from, "the folder of a run, or of a Hugging Face model")->required();
  CLI::Option* prompts = command->add_option("--prompt", text.prompts, "a text; may be given several times");
  prompts->allow_extra_args(false);
  command->add_option("--prompts", text.file, "a file with a text on each line")->excludes(prompts);
  train::SamplingOptions& sampling = text.how.sampling;
  command->add_option("--tokens", text.how.tokens, "at most so many tokens after each")->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0: always the likeliest token")->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "draw from so many of the likeliest; 0: from all")
      ->capture_default_str();
  command->add_option("--top-p", sampling.top_p, "draw from as few as have this probability together")
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "of the draws")->capture_default_str();
  command->add_option("--dtype", text.dtype, "convert the weights: bf16 or f16")->check(CLI::IsMember({"bf16", "f16"}));
  command->add_option("--group", text.run.group, "how ranks communicate, see train");
  command->add_option("--set", text.run.overrides, "change one key of the run, e.g. --set device=cuda")
      ->allow_extra_args(false);
  command->callback([this] {
    if (text.prompts.empty() && text.file.empty()) throw CLI::RequiredError("--prompt or --prompts");
    chosen = [this] { return generate_command(text); };
  });
}

void CommandLine::add_certify() {
  CLI::App* command = app.add_subcommand("certify", "Does an operation keep the kernel contract on a device?");
  command->add_option("op", certify.op, "an operation of autograd/ops.h, or of a library")->required();
  command->add_option("--device", certify.device, "cpu, sim or cuda");
  command->add_option("--library", certify.libraries, "load a library of kernels first")->allow_extra_args(false);
  command->add_option("--use", certify.use, "put a kernel in the place of the built-in one, e.g. layer_norm=mine")
      ->allow_extra_args(false);
  command->callback([this] { chosen = [this] { return certify_command(certify); }; });
}

void CommandLine::add_launch() {
  CLI::App* command = app.add_subcommand("launch", "Start N ranks of a command on this machine: launch -n 4 train …");
  command->add_option("-n", launch.ranks, "number of ranks")->required()->check(CLI::Range(1, 4096));
  command->add_option("--threads", launch.options.threads, "CPU threads per rank; by default cores over ranks")
      ->check(CLI::Range(1, 4096));
  command->add_option("--by", launch.options.by, "mpi or local (without MPI); by default MPI where there is one");
  command->footer("After its options comes what the ranks run: launch -n 2 train configs/fashion_mnist.json");
  command->prefix_command();
  command->callback([this, command] {
    launch.words = command->remaining();
    if (launch.words.empty())
      throw CLI::RequiredError("a command after launch -n N, e.g. train configs/fashion_mnist.json");
    if (launch.words[0].starts_with('-')) throw CLI::ExtrasError(launch.words);
    chosen = [this] {
      tell_ranks(train.typed);
      return run_launch(launch, *train.registry);
    };
  });
}

void CommandLine::add_new() {
  CLI::App* command = app.add_subcommand("new", "Write a project with a model of its own, ready to build and train");
  command->add_option("folder", folder, "where to; made if it does not exist")->required();
  command->callback([this] { chosen = [this] { return new_command(folder); }; });
}

CommandLine::CommandLine(const train::Registry& registry)
    : train{&registry}, plan{&registry}, use{{&registry}}, text{{&registry}} {
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 problems found by doctor or certify, or an exception that is none of the library's, 2 "
      "refused input, 3 missing device or library, 4 a rank failed, 5 out of memory, 75 saved on a signal.");
  app.failure_message(refusal);
  add_train();
  add_launch();
  add_plan(app, plan, chosen);
  add_uses();
  add_generate();
  add_certify();
  add_new();
  add_doctor(app, doctor, chosen);
  add_tokenizer(app, chosen);
}

std::optional<int> CommandLine::parse(std::vector<std::string> words) {
  std::ranges::reverse(words);  // as CLI11 wants them
  try {
    app.parse(std::move(words));
    return {};
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : int(ErrorKind::input);
  }
}

std::string own_path() {
  std::string why = dist::why_no_proc();
  if (!why.empty())
    fail_as(ErrorKind::missing, "launch: /proc/self/exe cannot be read (", why, "); ", dist::kMountProc);
  return std::filesystem::read_symlink("/proc/self/exe");
}

int run_launch(const LaunchCommand& launch, const train::Registry& registry) {
  std::signal(SIGXFSZ, SIG_DFL);  // what is launched inherits it
  std::vector<std::string> words = launch.words;
  CommandLine of_ranks(registry);  // what is wrong with it is said once, and not by every rank
  if (of_ranks.is_command(words[0])) {
    if (std::optional<int> code = of_ranks.parse(words)) return *code;
    words.insert(words.begin(), own_path());
  }
  try {
    return dist::launch(launch.ranks, words, launch.options);
  } catch (const Error& error) {
    throw Error(error.kind(), error.what() + did_you_mean(nearest_command(of_ranks.app, words[0])));
  }
}

}  // namespace

static int run_commands(int argc, char** argv, const train::Registry& registry) {
  try {
    CommandLine line(registry);
    line.train.typed = {argv, argv + argc};
    if (std::optional<int> code = line.parse({argv + 1, argv + argc})) return *code;
    if (!line.doctor.examines) check_kernel_choices();
    return line.chosen();
  } catch (...) {
    std::cerr << "shardgrad: " << dist::describe(std::current_exception()) << std::endl;
    return dist::exit_code(std::current_exception(), 1);
  }
}

int run(int argc, char** argv, const train::Registry& registry) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow further is an error of its write
  int code = run_commands(argc, argv, registry);
  if (std::cout.flush()) return code;
  std::cerr << dist::kOutputLost << std::endl;
  return code == 0 ? int(ErrorKind::input) : code;
}

}  // namespace shardgrad::cli
