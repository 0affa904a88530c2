#include <fcntl.h>
#include <sysexits.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/trainer.h>

namespace shardgrad::cli {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Nothing where standard output is no terminal. mpirun gives every rank one of its own, wherever its own output goes;
// `launch` says which one that is.
train::Terminal find_terminal(const dist::Job& job) {
  std::string kind = variable("TERM"), path = variable("SHARDGRAD_TERMINAL");
  if (kind.empty() || kind == "dumb") return {};
  bool by_mpi = job.bootstrap().name() == "mpi";
  int descriptor = by_mpi ? open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC) : STDOUT_FILENO;  // open to the end
  train::Terminal terminal;
  if (isatty(descriptor))
    terminal.columns = [descriptor] { return train::terminal_columns(descriptor, std::getenv("COLUMNS")); };
  return terminal;
}

}  // namespace

int train_command(const RunOptions& options) {
  return run_job(options, [](const train::Config& config, dist::Job& job) {
    train::Result result = train::train(config, job.world(), std::cout, find_terminal(job));
    return result.stopped ? EX_TEMPFAIL : 0;  // 75
  });
}

}  // namespace shardgrad::cli
