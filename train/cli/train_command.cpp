#include <sysexits.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/trainer.h>

namespace shardgrad::cli {

int train_command(const RunOptions& options) {
  return run_job(options, [](const train::Config& config, dist::Job& job) {
    // mpirun gives every rank a terminal of its own, wherever its own output goes.
    const char* kind = std::getenv("TERM");
    bool terminal = isatty(STDOUT_FILENO) && job.bootstrap().name() != "mpi" && kind && kind != std::string("dumb");
    train::Terminal shown;
    if (terminal) shown.columns = [] { return train::terminal_columns(STDOUT_FILENO, std::getenv("COLUMNS")); };
    train::Result result = train::train(config, job.world(), std::cout, shown);
    return result.stopped ? EX_TEMPFAIL : 0;  // 75
  });
}

}  // namespace shardgrad::cli
