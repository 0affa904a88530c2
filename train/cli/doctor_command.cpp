#include <unistd.h>

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

}  // namespace shardgrad::cli
