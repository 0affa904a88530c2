#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include <shardgrad/core/error.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/doctor/checks.h>
#include <shardgrad/train/terminal.h>

namespace shardgrad::cli {

int doctor_command(int ranks) {
  namespace doctor = train::doctor;
  doctor::Machine machine = doctor::this_machine(ranks);
  doctor::Findings findings = doctor::examine(machine);
  std::string title = concat("shardgrad ", machine.build.version, " (git ", machine.build.git, ") on ", machine.host,
                             ", for ", machine.ranks, machine.ranks == 1 ? " rank" : " ranks");
  std::cout << doctor::screen(title, findings, train::terminal_columns(STDOUT_FILENO, std::getenv("COLUMNS")))
            << std::flush;
  return doctor::has_problem(findings) ? 1 : 0;
}

void add_doctor(CLI::App& app, DoctorOptions& options, std::function<int()>& chosen) {
  CLI::App* command =
      app.add_subcommand("doctor", "Is this machine ready to train? What is not, and what to do about it");
  CLI::Option* ranks =
      command->add_option("-n", options.ranks, "for so many ranks on this machine; by default SLURM's tasks, or else 2")
          ->check(CLI::Range(1, 4096));
  CLI::Option* file = command
                          ->add_option("--measure", options.file,
                                       "instead time what connects the ranks (launch -n 2 doctor …; alone: two here), "
                                       "into a file for plan --network")
                          ->excludes(ranks);
  command->add_option("--group", options.group, "for --measure: how ranks communicate, see train")->needs(file);
  command->add_option("--device", options.device, "for --measure: cpu or cuda")->needs(file);
  command->callback([&] {
    options.examines = options.file.empty();
    chosen = [&] { return options.file.empty() ? doctor_command(options.ranks) : measure_command(options); };
  });
}

}  // namespace shardgrad::cli
