#include <shardgrad/train/cli/run_job.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/train/registry.h>

namespace shardgrad::cli {

Device choose_device(const std::string& wish, bool says_so) {
  if (wish != "auto") return parse_device(wish);
  if (cuda_device_count() > 0) return kCuda;
  if (says_so) std::cerr << "shardgrad: no CUDA device; training on the CPU\n";
  return kCpu;
}

// mpirun gives every rank a terminal of its own, wherever its own output goes; `launch` says which one that is.
train::Terminal find_terminal(const dist::Job& job) {
  const char *kind = std::getenv("TERM"), *path = std::getenv("SHARDGRAD_TERMINAL");
  if (job.world().rank() != 0 || !kind || !*kind || std::string(kind) == "dumb") return {};
  bool by_mpi = job.bootstrap().name() == "mpi";
  int descriptor = by_mpi ? open(path ? path : "", O_RDONLY | O_NOCTTY | O_CLOEXEC) : STDOUT_FILENO;  // open to the end
  train::Terminal terminal;
  if (isatty(descriptor))
    terminal.columns = [descriptor] { return train::terminal_columns(descriptor, std::getenv("COLUMNS")); };
  return terminal;
}

int run_job(const RunOptions& options, const std::function<int(const train::Config&, dist::Job&)>& body) {
  train::Config config;
  auto configure = [&](const dist::Bootstrap& bootstrap) {
    config = train::read_config(options.config, options.overrides, *options.registry);
    for (const auto& [op, kernel] : config.kernels) use_kernels(op, kernel);
    dist::JobOptions job;
    job.context.seed = uint64_t(config.seed);
    job.context.device = choose_device(config.device, bootstrap.rank() == 0);
    job.group.kind = options.group;
    job.when_told = options.when_told;
    job.watch.stall_limit = std::chrono::seconds(config.stall_limit);
    return job;
  };
  return dist::run_job([&](dist::Job& job) { return body(config, job); }, configure);
}

}  // namespace shardgrad::cli
