#include <shardgrad/train/cli/program.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/launch/launch.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/kernels/table.h>
#include <shardgrad/train/cli/version.h>
#include <shardgrad/train/config.h>

namespace shardgrad::cli {

std::string version_text() {
  BuildInfo build = build_info();
  std::string mpi = dist::mpi_library();
  return concat("shardgrad ", build.version, " (git ", build.git, ")\n  compiler  ", build.compiler, "\n  MPI       ",
                mpi.empty() ? "none" : mpi, "\n  oneDNN    ", build.onednn, "\n  OpenMP    ", build.openmp,
                "\n  CUDA      ", build.cuda, "\n  CPU       ", name_of(best_isa()), "\n");
}

namespace {

void add_train(CLI::App& app, TrainOptions& options, bool& keys, int& code) {
  CLI::App* command = app.add_subcommand("train", "Train the model of a configuration file");
  command->add_option("config", options.config, "the configuration, a JSON file; see --keys");
  command->add_option("--set", options.overrides, "change one key, e.g. --set optimizer.lr=0.01")
      ->allow_extra_args(false);
  command->add_option("--group", options.group,
                      "how ranks communicate: single, shared_memory, mpi or nccl; by default what fits");
  command->add_flag("--keys", keys, "list the configuration's keys and end");
  command->callback([&] {
    if (keys) {
      std::cout << train::key_table();
      return;
    }
    if (options.config.empty()) throw CLI::RequiredError("config");
    code = train_command(options);
  });
}

void add_plan(CLI::App& app, PlanOptions& options, int& code) {
  CLI::App* command = app.add_subcommand("plan", "Memory and traffic of a training step by unit, before training");
  command->add_option("config", options.config, "the configuration, a JSON file")->required();
  command->add_option("--ranks", options.ranks, "number of ranks")->check(CLI::Range(1, 4096));
  command->add_option("--set", options.overrides, "change one key, e.g. --set strategy=zero2")->allow_extra_args(false);
  command->add_flag("--measure", options.measure, "also run the step here, ranks as threads, and compare");
  command->callback([&] { code = plan_command(options); });
}

void add_certify(CLI::App& app, CertifyOptions& options, int& code) {
  CLI::App* command = app.add_subcommand("certify", "Does an operation keep the kernel contract on a device?");
  command->add_option("op", options.op, "an operation of autograd/ops.h, or of a library")->required();
  command->add_option("--device", options.device, "cpu, sim or cuda");
  command->add_option("--library", options.libraries, "load a library of kernels first")->allow_extra_args(false);
  command->add_option("--use", options.use, "put a kernel in the place of the built-in one, e.g. layer_norm=mine")
      ->allow_extra_args(false);
  command->callback([&] { code = certify_command(options); });
}

bool is_command(const CLI::App& app, const std::string& word) {
  auto same = [&](const CLI::App* command) { return command->get_name() == word; };
  return !app.get_subcommands(same).empty();
}

std::string own_path() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    fail_as(ErrorKind::missing, "launch: /proc/self/exe cannot be read (", error.message(),
            "); ranks find each other through /proc: mount it (mount -t proc proc /proc)");
  return path;
}

struct LaunchCommand {
  int ranks = 2;
  dist::LaunchOptions options;
};

void add_launch(CLI::App& app, LaunchCommand& launch, int& code) {
  CLI::App* command = app.add_subcommand("launch", "Start N ranks of a command on this machine: launch -n 4 train …");
  command->add_option("-n", launch.ranks, "number of ranks")->required()->check(CLI::Range(1, 4096));
  command->add_option("--threads", launch.options.threads, "CPU threads per rank; 0: cores over ranks");
  command->add_option("--by", launch.options.by, "mpi or local (without MPI); by default MPI where there is one");
  command->prefix_command();
  command->callback([&app, &launch, &code, command] {
    std::vector<std::string> words = command->remaining();
    if (words.empty()) throw CLI::RequiredError("a command after launch -n N, e.g. train configs/fashion_mnist.json");
    if (is_command(app, words[0])) words.insert(words.begin(), own_path());
    code = dist::launch(launch.ranks, words, launch.options);
  });
}

}  // namespace

int run(int argc, char** argv) {
  CLI::App app("shardgrad: tensors, autograd and ZeRO-sharded training", "shardgrad");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 2 refused input, 3 missing device or library, 4 a rank failed, 5 out of memory, 75 saved on "
      "a signal.");
  int code = 0;
  TrainOptions train;
  bool keys = false;
  LaunchCommand launch;
  PlanOptions plan;
  add_train(app, train, keys, code);
  add_launch(app, launch, code);
  add_plan(app, plan, code);
  CertifyOptions certify;
  add_certify(app, certify, code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : int(ErrorKind::input);
  } catch (...) {
    std::cerr << "shardgrad: " << dist::describe(std::current_exception()) << std::endl;
    return dist::exit_code(std::current_exception(), 1);
  }
  return code;
}

}  // namespace shardgrad::cli
